package server

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unsentBytes is how much the kernel may hold that it hasn't sent yet
// (TCP_NOTSENT_LOWAT, tcp(7)): what it can't send is better kept where many
// connections share it.
const unsentBytes = 16 << 10

// probeAfter is after how many seconds of silence the kernel asks whether the
// peer is there, and how often.
const probeAfter = 30

// deferAccept is for how many seconds at most the kernel keeps a connection to
// itself on which nothing was sent yet (tcp(7)): when it is accepted, its
// request is there.
const deferAccept = 1

// tuned binds with options that accepted connections inherit, which spares
// several system calls for each. A peer whose side acknowledges nothing for
// writeTimeout is gone (TCP_USER_TIMEOUT, RFC 5482).
func tuned(writeTimeout time.Duration) net.ListenConfig {
	options := []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, probeAfter},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, probeAfter},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(writeTimeout.Milliseconds())},
		{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, deferAccept},
	}
	return net.ListenConfig{
		KeepAlive: -1, // set above
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) {
				for _, o := range options {
					if failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), o.level, o.name, o.value)); failed != nil {
						return
					}
				}
			})
			if err != nil {
				return err
			}
			return failed
		},
	}
}
