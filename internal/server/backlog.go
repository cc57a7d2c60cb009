package server

import (
	"errors"
	"fmt"
	"syscall"
)

// A Backlog is what the kernel holds for a listener.
type Backlog struct {
	Waiting uint32 // connections that are there and weren't accepted yet
	Most    uint32 // that there may be; the kernel drops those that are more
}

// ErrNoBacklog means that the system doesn't tell.
var ErrNoBacklog = errors.New("only Linux tells how many connections wait to be accepted")

// Backlog asks the kernel. The error may be ErrNoBacklog.
func (s *Server) Backlog() (Backlog, error) {
	socket, ok := s.socket.(syscall.Conn)
	if !ok {
		return Backlog{}, fmt.Errorf("asking for the listener's queue: a %T has no descriptor", s.socket)
	}
	return backlog(socket)
}
