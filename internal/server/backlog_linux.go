package server

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// backlog reads what tcp_get_info (net/ipv4/tcp.c) says of a socket that listens:
// the queue's length stands where else is what wasn't acknowledged.
func backlog(socket syscall.Conn) (Backlog, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return Backlog{}, fmt.Errorf("asking for the listener's queue: %w", err)
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	switch {
	case err != nil:
		return Backlog{}, fmt.Errorf("asking for the listener's queue: %w", err)
	case failed != nil:
		return Backlog{}, fmt.Errorf("asking for the listener's queue: getsockopt: %w", failed)
	case info.State != tcpListen:
		return Backlog{}, fmt.Errorf("asking for the listener's queue: the socket is in state %d and doesn't listen", info.State)
	}
	return Backlog{Waiting: info.Unacked, Most: info.Sacked}, nil
}

// tcpListen is TCP_LISTEN of the kernel's tcp_states.h.
const tcpListen = 10
