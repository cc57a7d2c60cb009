package conn

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
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
	rest    [][]byte // begun, and not yet taken by the socket
	taken   int64    // tick at which the socket last took something
	unacked int      // bytes that the peer hadn't acknowledged when last looked at; while blocked
	heard   int      // bytes after the request
	closing bool     // rest holds the last frame

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

// Serve implements Conn. It returns when the connection is in the driver's
// hands.
func (c *light) Serve(w http.ResponseWriter, _ *http.Request, first []byte, s Stream) {
	l := c.driver
	c.stream = s
	if !l.enter() {
		s.Closed(ErrCut)
		return // busy for ever: nobody runs it
	}
	head := responseHead(w.Header(), first)
	if err := c.take(w); err != nil {
		s.Closed(err)
		l.leave()
		return
	}
	c.rest = [][]byte{head}
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
	scratch := scratches.Get().(*scratch) //nolint:errcheck // the pool holds nothing else
	c.run(scratch)
	scratches.Put(scratch)
}

// responseHead is the status line and the header, and the first bytes of the
// body, which ends with the connection (RFC 9112 §6.3): frames that all
// connections share can't carry the sizes of chunks.
func responseHead(h http.Header, first []byte) []byte {
	b := bytes.NewBuffer(make([]byte, 0, 512))
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

// take takes the descriptor away from net/http, and from Go's own poller: what
// they hold for a connection is several times what we do.
func (c *light) take(w http.ResponseWriter) error {
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return errors.Join(ErrTransport, err)
	}
	defer nc.Close()
	if n := rw.Reader.Buffered(); n > 0 {
		early, _ := rw.Reader.Peek(n) // they are there
		if !c.stray(early) {
			return ErrUnexpected
		}
	}
	raw, ok := nc.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%w: a %T has no descriptor", ErrTransport, nc)
	}
	if c.fd, err = duplicate(raw); err != nil {
		return errors.Join(ErrTransport, err)
	}
	c.release = func() {}
	if d, ok := nc.(Detacher); ok {
		c.release = d.Detach()
	}
	return nil
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

// gatherLight is how many bytes are asked of a stream at a time. It bounds what a
// connection holds on to while its socket is full.
const gatherLight = 32 << 10

// deliver writes what is pending until the socket is full or nothing is left.
// over: the last frame has been written.
func (c *light) deliver(s *scratch) (over bool, err error) {
	for more := true; more; {
		if !c.closing {
			if last, ends := c.stream.End(); ends {
				c.rest, c.closing = append(c.rest, last), true
			}
		}
		frames := append(s.frames[:0], c.rest...)
		more = false
		if !c.closing {
			frames = c.stream.Next(frames, gatherLight)
			more = size(frames) >= gatherLight
		}
		if err := c.send(s, frames); err != nil {
			return false, err
		}
		if c.isBlocked() {
			return false, nil
		}
		if c.closing {
			return true, nil
		}
	}
	return false, nil
}

// send writes frames; what the socket doesn't take becomes the rest, and the
// connection is blocked then.
func (c *light) send(s *scratch, frames [][]byte) error {
	defer s.forget(frames)
	c.rest = nil
	left := frames
	for len(left) > 0 {
		n, err := s.write(c.fd, left)
		if n > 0 {
			c.taken = c.driver.ticks.Load()
			left = skip(left, n)
			continue
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && !c.isBlocked():
			// Once more, now that whoever hears of room can see it.
			c.block()
		case errors.Is(err, unix.EAGAIN):
			c.rest = append([][]byte(nil), left...)
			return nil
		default:
			return fault(err)
		}
	}
	c.unblock()
	return nil
}

func (c *light) isBlocked() bool { return c.news.Load()&blocked != 0 }

func (c *light) unblock() { c.news.And(^blocked) }

// block notes that the socket is full, and looks again soon.
func (c *light) block() {
	c.news.Or(blocked)
	c.unacked = unacked(c.fd)
	c.driver.wheel.put(c, c.driver.probe())
}

// hear reads what the peer says, which should be nothing.
func (c *light) hear() error {
	var b [64]byte
	for {
		n, err := unix.Read(c.fd, b[:])
		switch {
		case n > 0:
			if !c.stray(b[:n]) {
				return ErrUnexpected
			}
		case err == nil:
			return ErrGone // a half-closed client has no more use for us either
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil
		default:
			return fault(err)
		}
	}
}

// stray reports whether bytes after the request are no more than the line ends
// that some clients send behind a body (RFC 9112 §2.2).
func (c *light) stray(b []byte) bool {
	c.heard += len(b)
	return c.heard <= len("\r\n\r\n") && len(bytes.Trim(b, "\r\n")) == 0
}

// rhythm writes a keep-alive if nothing else was written for long, and ends
// whoever takes nothing. It schedules the next look.
func (c *light) rhythm(s *scratch) error {
	l := c.driver
	now := l.ticks.Load()
	if c.isBlocked() {
		if left := unacked(c.fd); left != c.unacked {
			c.unacked, c.taken = left, now // slow, but alive
		}
		if now-c.taken >= l.limit {
			return ErrStalled
		}
		l.wheel.put(c, l.probe())
		return nil
	}
	if now-c.taken >= l.keep {
		if err := c.send(s, append(s.frames[:0], c.stream.KeepAlive())); err != nil {
			return err
		}
		if c.isBlocked() {
			return nil // scheduled
		}
	}
	l.wheel.put(c, c.taken+l.keep-now)
	return nil
}

// end closes the connection and tells the stream. The driver's table forgets
// it before its descriptor can become another's.
func (c *light) end(err error) {
	l := c.driver
	l.wheel.remove(c)
	l.poller.remove(c)
	unix.Close(c.fd) //nolint:errcheck // there is nothing left to do about it
	c.release()
	c.rest = nil
	c.stream.Closed(err)
	l.leave()
}
