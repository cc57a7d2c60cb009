package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"downlink/internal/lobby"
)

// A listener is what a Server accepts from.
type listener interface {
	net.Listener
	// drain waits, after Close, for requests that net/http doesn't know of.
	drain(ctx context.Context)
}

// A limited listener counts its connections in a lobby, and goes on accepting
// when the process is out of descriptors.
type limited struct {
	net.Listener
	lobby   *lobby.Lobby
	reserve *reserve
	cutting chan struct{} // holds one for each connection that is being cut
	odd     *oddities
}

// Accept implements net.Listener. It fails only once the listener is closed.
func (l limited) Accept() (net.Conn, error) {
	c, guest, err := l.next()
	if err != nil {
		return nil, err
	}
	return l.seat(c, guest), nil
}

// next is the next connection, which has no seat yet. It fails as Accept does.
func (l limited) next() (net.Conn, *lobby.Guest, error) {
	for failed := 0; ; {
		c, err := l.Listener.Accept()
		if err != nil {
			if !l.overcome(err, failed) {
				return nil, nil, err
			}
			failed++
			continue
		}
		failed = 0
		if guest := l.lobby.Arrive(addressOf(c.RemoteAddr())); guest != nil {
			return c, guest, nil
		}
		c.Close()
	}
}

// maxAccepting is how many goroutines wait for connections, at most.
const maxAccepting = 8

// overcome does something about a connection that couldn't be accepted, for the
// failed-th time in a row; false: the listener is closed. A descriptor is found
// in the reserve, or by cutting who has waited longest.
func (l limited) overcome(err error, failed int) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	if outOfDescriptors(err) {
		if l.reserve.lend() {
			return true
		}
		if l.lobby.CutOne() {
			failed = 0 // its descriptor will be free in a moment
		}
	}
	return l.reserve.pause(failed)
}

// Close implements net.Listener.
func (l limited) Close() error {
	l.reserve.close()
	return l.Listener.Close()
}

func (limited) drain(context.Context) {}

// addressOf is a peer's address; the zero value if it has none.
func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// A limitedConn is a guest's connection.
type limitedConn struct {
	net.Conn
	accepted net.Conn // what Conn was at first
	guest    *lobby.Guest
	cutting  chan struct{}
	detached atomic.Bool
	shaking  bool // its TLS handshake is being done, by whoever reads
	odd      *oddities
	read     int   // bytes, in the clear
	failed   error // of the last Read
}

// seat makes a guest's connection, which may be cut from now on.
func (l limited) seat(c net.Conn, guest *lobby.Guest) *limitedConn {
	seated := &limitedConn{Conn: c, accepted: c, guest: guest, cutting: l.cutting, odd: l.odd}
	guest.Sit((*cuttable)(seated))
	return seated
}

// cuttable is a limitedConn as whoever cuts it sees it, who doesn't wait for
// what its owner does with Conn.
type cuttable limitedConn

// Close implements io.Closer. Closing waits until whoever reads has noticed, which
// on a busy machine takes longer than accepting should.
func (c *cuttable) Close() error {
	c.guest.Leave()
	c.cutting <- struct{}{}
	go func() {
		_ = c.accepted.Close() // there is nobody to tell
		<-c.cutting
	}()
	return nil
}

// maxCutting is how many connections are being cut at a time: their descriptors
// aren't free yet.
const maxCutting = 64

// guestOf is the connection as it was accepted; nil if it wasn't here.
func guestOf(c net.Conn) *limitedConn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	l, _ := c.(*limitedConn)
	return l
}

// Read implements net.Conn. In a handshake it lets others work while it waits, and
// waits until it may go on.
func (c *limitedConn) Read(b []byte) (int, error) {
	if !c.shaking {
		n, err := c.Conn.Read(b)
		c.read, c.failed = c.read+n, err
		return n, err
	}
	if first, ok := c.Conn.(*begun); !ok || len(first.head) == 0 {
		c.guest.Rest()
	}
	n, err := c.Conn.Read(b)
	if !c.guest.Work() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn. It keeps to itself what net/http says to a request
// that it can't read, if that is so only because its time was up.
func (c *limitedConn) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte(unreadable)) {
		if errors.Is(c.failed, os.ErrDeadlineExceeded) {
			return 0, c.failed
		}
		c.odd.say(c)
	}
	return c.Conn.Write(b)
}

func (c *limitedConn) Close() error {
	if !c.detached.Load() {
		defer c.guest.Leave()
	}
	return c.Conn.Close()
}

// Detach leaves the guest in when its connection is closed, because the
// descriptor lives on in other hands; release lets it leave.
func (c *limitedConn) Detach() (release func()) {
	c.detached.Store(true)
	return c.guest.Take()
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
