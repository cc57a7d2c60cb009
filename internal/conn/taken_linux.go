package conn

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// light is a connection that was taken over. Whoever learns something about it
// notes that in news and, if nobody has it in hand, queues it; whoever takes it
// from the queue runs it. So one goroutine at a time owns it, without a lock.
type light struct {
	driver *Light
	news   atomic.Uint32

	// Owned by whoever runs it.
	fd      int
	release func() // gives its place at the listener back
	stream  Stream
	secured *secured // nil without TLS
	rest    [][]byte // begun (and sealed), not yet taken by the socket
	taken   int64    // tick at which the socket last took something
	unacked int      // bytes that the peer hadn't acknowledged when last looked at; while it lags
	heard   int      // bytes after the request
	closing bool     // rest holds the last frame
	watched bool     // the poller watches for room
	lags    bool     // the socket was full, and the peer hasn't taken everything since

	// Guarded by the poller's mutex.
	watch int32 // the descriptor while it is watched, plus one; 0: it isn't

	// Guarded by the wheel's mutex.
	slot       int // -1: not scheduled
	next, prev *light
}

// News of a connection. More than one may be set.
const (
	busy     uint32 = 1 << iota // somebody runs it or will: it is queued, or not yet served, or over
	blocked                     // the socket is full: only a state, written by the owner
	woken                       // the stream has something
	readable                    // bytes, a hang-up or an error
	writable                    // the socket has room again
	due                         // its time on the wheel has come
	cut                         // the driver doesn't wait any longer
)

// notify notes what has happened and sees to it that somebody looks.
func (c *light) notify(what uint32) {
	if c.news.Or(what|busy)&busy == 0 {
		c.driver.ready.push(c)
	}
}

// Wake implements Conn.
func (c *light) Wake() { c.notify(woken) }

// Peer implements Conn. The address isn't kept for each connection: the system
// knows it.
func (c *light) Peer() (address, protocol string) {
	peer, secured, ok := c.driver.poller.peer(c)
	if !ok {
		return "", ""
	}
	return peer, spoken("HTTP/1.1", secured)
}

// Serve implements Conn. It returns when the connection is in the driver's
// hands.
func (c *light) Serve(w http.ResponseWriter, _ *http.Request, first []byte, s Stream) {
	l := c.driver
	c.stream = s
	if !l.enter() {
		s.Closed(ErrCut)
		return // busy for ever: nobody runs it
	}
	scratch := l.scratches.Get().(*scratch)
	defer l.scratches.Put(scratch)
	head := bytes.Clone(responseHead(scratch.buf[:0], w.Header(), first))
	err := c.take(w)
	if err != nil {
		s.Closed(err)
		l.leave()
		return
	}
	if c.rest, err = c.seal(nil, [][]byte{head}); err != nil {
		c.end(ErrGone)
		return
	}
	c.taken = l.ticks.Load()
	if err := l.poller.add(c); err != nil {
		c.end(errors.Join(ErrTransport, err))
		return
	}
	if l.isCutting() {
		c.news.Or(cut)
	}
	// Spread over a quarter, or a crowd that came at once would be pinged at once.
	l.wheel.put(c, l.keep-rand.Int64N(l.keep/4+1))
	c.run(scratch)
}

// responseHead appends the status line and the header, and the first bytes of the
// body, which ends with the connection (RFC 9112 §6.3): frames that all
// connections share can't carry the sizes of chunks.
func responseHead(dst []byte, h http.Header, first []byte) []byte {
	b := bytes.NewBuffer(dst)
	b.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(b) // a buffer takes everything
	b.WriteString("Date: ")
	b.Write(time.Now().UTC().AppendFormat(b.AvailableBuffer(), http.TimeFormat))
	b.WriteString("\r\n\r\n")
	b.Write(first)
	return b.Bytes()
}

// A Detacher is a connection whose listener counts it: what Detach returns
// gives its place back, instead of Close.
type Detacher interface {
	Detach() (release func())
}

// A Taker is a ResponseWriter whose connection nobody else has in hand: what
// follows the request hasn't been read. Take makes the caller the owner of the
// descriptor, which is non-blocking; release is to be called when it is closed.
type Taker interface {
	Take() (fd int, release func())
}

// take takes the descriptor away from net/http, and from Go's own poller: what
// they hold for a connection is several times what we do.
func (c *light) take(w http.ResponseWriter) error {
	if t, ok := w.(Taker); ok {
		c.fd, c.release = t.Take()
		return nil
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return errors.Join(ErrTransport, err)
	}
	under, over, err := layers(nc)
	if err != nil {
		nc.Close()
		return err
	}
	closed := under
	defer func() { closed.Close() }() // without a word of TLS, which goes on
	if n := rw.Reader.Buffered(); n > 0 {
		early, _ := rw.Reader.Peek(n) // they are there
		if !c.stray(early) {
			return ErrUnexpected
		}
	}
	raw, ok := under.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%w: a %T has no descriptor", ErrTransport, under)
	}
	if c.fd, err = duplicate(raw); err != nil {
		return errors.Join(ErrTransport, err)
	}
	if over != nil {
		c.secured = &secured{tls: over, fd: c.fd}
		closed = under.(Replacer).Replace(c.secured)
		c.secured.Conn = closed
		c.news.Or(readable) // crypto/tls may have read more than the request
	}
	c.release = func() {}
	if d, ok := under.(Detacher); ok {
		c.release = d.Detach()
	}
	return nil
}

// layers is TLS and the connection under it; over is nil without TLS.
func layers(nc net.Conn) (under net.Conn, over *tls.Conn, err error) {
	over, ok := nc.(*tls.Conn)
	if !ok {
		return nc, nil, nil
	}
	under = over.NetConn()
	if _, ok := under.(Replacer); !ok {
		return nil, nil, fmt.Errorf("%w: TLS over a %T can't be taken over", ErrTransport, under)
	}
	return under, over, nil
}

func duplicate(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(from uintptr) {
		fd, failed = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	})
	return fd, errors.Join(err, failed)
}

// run does what the news ask for. Only who has taken the connection from the
// queue may call it, or who has just made it.
func (c *light) run(s *scratch) {
	news := c.news.And(blocked|busy) &^ busy
	if over, err := c.step(news, s); over {
		c.end(err)
		return // busy for ever
	}
	for {
		now := c.news.Load()
		if now&^(busy|blocked) != 0 {
			c.driver.ready.push(c) // behind the others
			return
		}
		if c.news.CompareAndSwap(now, now&^busy) {
			return
		}
	}
}

func (c *light) step(news uint32, s *scratch) (over bool, err error) {
	if news&cut != 0 {
		return true, ErrCut
	}
	if news&readable != 0 {
		if err := c.hear(); err != nil {
			return true, err
		}
	}
	if news&writable != 0 {
		c.unblock()
	}
	if !c.isBlocked() {
		if over, err := c.deliver(s); over || err != nil {
			return true, err
		}
	}
	if news&due != 0 {
		if err := c.rhythm(s); err != nil {
			return true, err
		}
	}
	return false, nil
}

// end tells the stream and closes the connection: whoever sees it closed and
// comes back at once must not meet its own old stream. The driver's table
// forgets it before its descriptor can become another's.
func (c *light) end(err error) {
	l := c.driver
	l.wheel.remove(c)
	c.rest = nil
	c.stream.Closed(err)
	l.poller.remove(c)
	unix.Close(c.fd) //nolint:errcheck // there is nothing left to do about it
	c.release()
	l.leave()
}
