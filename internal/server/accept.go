package server

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
)

// A listener is what a Server accepts from.
type listener interface {
	net.Listener
	// drain waits, after Close, for requests that net/http doesn't know of.
	drain(ctx context.Context)
}

// A limited listener keeps clients from taking every descriptor of the process:
// the log needs some, and can't go on without.
type limited struct {
	net.Listener
	free       chan struct{}
	turnedAway func()
}

// enter takes a place for a connection; nil if there is none.
func (l limited) enter() *place {
	select {
	case l.free <- struct{}{}:
		return &place{free: l.free}
	default:
		l.turnedAway()
		return nil
	}
}

// Accept implements net.Listener.
func (l limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if place := l.enter(); place != nil {
			return &limitedConn{Conn: c, place: place}, nil
		}
		c.Close()
	}
}

func (limited) drain(context.Context) {}

type limitedConn struct {
	net.Conn
	place    *place
	detached atomic.Bool
}

// A place is what a connection takes of its listener's limit.
type place struct {
	free     chan struct{}
	released atomic.Bool
}

// release gives the place to the next connection, once.
func (p *place) release() {
	if p.released.CompareAndSwap(false, true) {
		<-p.free
	}
}

func (c *limitedConn) Close() error {
	if !c.detached.Load() {
		defer c.place.release()
	}
	return c.Conn.Close()
}

// Detach leaves the connection's place taken when it is closed, because its
// descriptor lives on in other hands; release gives the place back.
func (c *limitedConn) Detach() (release func()) {
	c.detached.Store(true)
	return c.place.release
}

// Replace puts another connection in the place of the one that the methods are
// passed to. Nobody may be using it meanwhile.
func (c *limitedConn) Replace(with net.Conn) (was net.Conn) {
	was, c.Conn = c.Conn, with
	return was
}

// SyscallConn gives access to the descriptor (syscall.Conn).
func (c *limitedConn) SyscallConn() (syscall.RawConn, error) {
	inner := c.Conn
	if b, ok := inner.(*begun); ok {
		inner = b.Conn
	}
	raw, ok := inner.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", inner)
	}
	return raw.SyscallConn()
}

// CloseWrite lets net/http end a refused request without cutting its answer.
func (c *limitedConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
