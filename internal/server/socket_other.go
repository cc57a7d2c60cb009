//go:build !linux

package server

import (
	"net"
	"syscall"
	"time"
)

// tuned binds with the options that every system has; the connections inherit
// them.
func tuned(time.Duration) net.ListenConfig {
	return net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, sendBuffer)
		})
		if err != nil {
			return err
		}
		return failed
	}}
}
