package server

import (
	"errors"
	"net"
	"runtime"
	"testing"

	"downlink/internal/testkit"
)

// TestBacklog: connections that nobody accepts, as the kernel counts them.
func TestBacklog(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{socket: socket}
	if b, err := s.Backlog(); runtime.GOOS != "linux" {
		if !errors.Is(err, ErrNoBacklog) {
			t.Errorf("%+v, %v", b, err)
		}
		socket.Close()
		return
	} else if err != nil || b.Waiting != 0 || b.Most < 16 {
		t.Errorf("of a new listener: %+v, %v", b, err)
	}
	for range 5 {
		c, err := net.Dial("tcp", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	waiting := func(n uint32) func() bool {
		return func() bool { b, err := s.Backlog(); return err == nil && b.Waiting == n }
	}
	testkit.Eventually(t, "five connections wait", waiting(5))
	for range 2 {
		c, err := socket.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	testkit.Eventually(t, "two were accepted", waiting(3))
	socket.Close()
	if b, err := s.Backlog(); err == nil {
		t.Errorf("of a closed listener: %+v", b)
	}
}
