package conn

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// gatherLight is how many bytes are asked of a stream at a time. It bounds what a
// connection holds on to while its socket is full.
const gatherLight = 32 << 10

// deliver writes what is pending until the socket is full or nothing is left.
// over: the last frame has been written.
func (c *light) deliver(s *scratch) (over bool, err error) {
	for more := true; more; {
		if !c.closing {
			if last, ends := c.stream.End(); ends {
				if err := c.goodbye(last); err != nil {
					return false, err
				}
			}
		}
		frames := append(s.frames[:0], c.rest...)
		more = false
		if begun, room := len(frames), gatherLight-size(frames); !c.closing {
			if room > 0 { // else each glimpse of room would add to what is held
				frames = c.stream.Next(frames, room)
			}
			more = size(frames[begun:]) >= room
			if frames, err = c.seal(frames[:begun], frames[begun:]); err != nil {
				return false, err
			}
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

// goodbye puts the last frame behind what was begun.
func (c *light) goodbye(last []byte) (err error) {
	c.closing = true
	c.taken = c.driver.ticks.Load()
	if c.rest, err = c.seal(c.rest, [][]byte{last}); err != nil || c.secured == nil {
		return err
	}
	if err := c.secured.tls.CloseWrite(); err != nil {
		return ErrGone
	}
	c.rest = append(c.rest, c.secured.take())
	return nil
}

// seal appends frames to dst as they go over the wire.
func (c *light) seal(dst, frames [][]byte) ([][]byte, error) {
	if c.secured == nil || len(frames) == 0 {
		return append(dst, frames...), nil
	}
	sealed, err := c.secured.seal(frames)
	if err != nil {
		return dst, ErrGone // the peer ended TLS
	}
	return append(dst, sealed), nil
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
			if !c.closing { // who is to go gets the limit once more, not again and again
				c.taken = c.driver.ticks.Load()
			}
			left = skip(left, n)
			continue
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && !c.isBlocked():
			// Once more, now that whoever hears of room can see it.
			if err := c.block(); err != nil {
				return err
			}
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
func (c *light) block() error {
	c.news.Or(blocked)
	c.unacked = unacked(c.fd)
	if !c.lags { // or follow looks at it anyway
		c.lags = true
		acknowledgeWithin(c.fd, 0)
		c.driver.wheel.put(c, c.driver.probe())
	}
	if c.watched {
		return nil
	}
	c.watched = true
	if err := c.driver.poller.room(c); err != nil {
		return errors.Join(ErrTransport, err)
	}
	return nil
}

// hear reads what the peer says, which should be nothing.
func (c *light) hear() error {
	var b [64]byte
	for {
		n, err := c.read(b[:])
		switch {
		case n > 0:
			if !c.stray(b[:n]) {
				return ErrUnexpected
			}
		case err == nil:
			return ErrGone // a half-closed client has no more use for us either
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.answer()
			return nil
		default:
			return fault(err)
		}
	}
}

func (c *light) read(b []byte) (int, error) {
	if c.secured != nil {
		return c.secured.hear(b)
	}
	return unix.Read(c.fd, b)
}

// answer puts what TLS itself says to what it heard behind what was begun. How
// much a peer can make it say is bounded there: 16 records that aren't data end
// a connection.
func (c *light) answer() {
	if c.secured == nil {
		return
	}
	if said := c.secured.take(); len(said) > 0 {
		c.rest = append(c.rest, said)
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
	if c.lags {
		if late, err := c.follow(now); late || err != nil {
			return err
		}
	}
	if now-c.taken >= l.keep {
		frames, err := c.seal(s.frames[:0], [][]byte{c.stream.KeepAlive()})
		if err != nil {
			return err
		}
		if err := c.send(s, frames); err != nil {
			return err
		}
		if c.isBlocked() {
			return nil // scheduled
		}
	}
	l.wheel.put(c, c.taken+l.keep-now)
	return nil
}

// follow looks how a peer gets on whose socket was full: late until it has
// taken everything. Meanwhile the kernel doesn't watch it (TCP_USER_TIMEOUT):
// that ends a peer whose window opens by less than the segment that waits
// first, however steadily it reads (measured: with a window of 4 KB and a limit
// of 30 s, who read 1 KB/s was cut after 34 s).
func (c *light) follow(now int64) (late bool, err error) {
	l := c.driver
	left := unacked(c.fd)
	if left == 0 && !c.isBlocked() {
		c.lags = false
		acknowledgeWithin(c.fd, l.ordinary.WriteTimeout)
		return false, nil
	}
	if left != c.unacked {
		c.unacked = left
		// Slow, but alive. A stream that is over can't be held byte by byte: its
		// credential may have expired.
		if _, over := c.stream.End(); !over {
			c.taken = now
		}
	}
	if now-c.taken >= l.limit {
		return true, ErrStalled
	}
	l.wheel.put(c, l.probe())
	return true, nil
}
