package dial

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coder/websocket"

	"downlink/internal/event"
	"downlink/internal/frame"
	"downlink/internal/lease"
	"downlink/internal/session"
)

// A call is one WebSocket to a device, from its hello to its end.
type call struct {
	socket  *socket
	ws      *websocket.Conn
	session *session.Session
	heard   chan error // why reading ended
	said    uint64     // the generation that the device knows
	frames  [][]byte   // taken from the session and not written yet
	reading func()     // ends reading, and with it the connection; nil before it begins
	pinging sync.WaitGroup
}

const (
	// gather is how many bytes are asked of a session at a time.
	gather = 64 << 10
	// stretch is how many bytes of a message have the write time limit once: a
	// slow device isn't a dead one.
	stretch = 64 << 10
	// overrun is the close code by which a device says that it knows a newer owner.
	overrun websocket.StatusCode = 4409
)

// serve writes what the session has until the call ends, and says why.
func (c *call) serve() End {
	reading, stop := context.WithCancelCause(c.socket.cut)
	c.reading = func() { stop(errStalled) }
	defer stop(nil)
	var reader sync.WaitGroup
	reader.Go(func() {
		err := c.read(reading)
		c.heard <- cmp.Or(context.Cause(reading), err)
	})
	err := c.drive()
	err = cmp.Or(context.Cause(c.socket.ctx), err) // what we wished for counts first
	c.session.Detach()
	c.part(err)
	stop(nil)
	reader.Wait()
	c.pinging.Wait()
	c.outranked(err)
	return endOf(err)
}

// outranked reports whether the device has ended the call because it knows a newer
// owner, and passes on which.
func (c *call) outranked(err error) bool {
	closed, ok := errors.AsType[websocket.CloseError](err)
	if !ok || closed.Code != overrun {
		return false
	}
	c.socket.holding.engine.outranked(c.socket.holding.shard, closed.Reason)
	return true
}

// drive is the loop of a call.
func (c *call) drive() error {
	s, o := c.socket, &c.socket.holding.engine.opts
	idle := time.NewTimer(o.Keepalive)
	defer idle.Stop()
	for {
		if err := c.finished(); err != nil {
			return err
		}
		l, live := s.holding.lease()
		if live {
			if len(c.frames) == 0 {
				c.frames = c.session.Next(c.frames[:0], gather)
			}
			if len(c.frames) > 0 {
				if err := c.writeAll(l); err != nil {
					return err
				}
				idle.Reset(o.Keepalive)
				continue
			}
			c.frames = nil // an idle call holds no buffer
		}
		select {
		case <-s.ctx.Done():
		case err := <-c.heard:
			return err
		case <-s.alarm:
		case <-idle.C:
			if err := c.keepAlive(l, live); err != nil {
				return err
			}
			idle.Reset(o.Keepalive)
		}
	}
}

// finished is why the call is over; nil while it isn't.
func (c *call) finished() error {
	switch {
	case c.socket.ctx.Err() != nil:
		return context.Cause(c.socket.ctx)
	case c.session.Ended() != "":
		return ending{Ordered}
	}
	return nil
}

// writeAll writes what was taken from the session, as long as the lease lives. The
// rest waits for another one.
func (c *call) writeAll(l lease.Lease) error {
	for len(c.frames) > 0 {
		if l.Generation > c.said {
			if wrote, err := c.write(l, risen(l)); !wrote {
				return err
			}
			c.said = l.Generation
		}
		if wrote, err := c.write(l, c.frames[0]); !wrote {
			return err
		}
		c.socket.holding.engine.opts.Metrics.events.Inc()
		c.frames[0] = nil
		c.frames = c.frames[1:]
	}
	return nil
}

// write sends one message if the lease lives, and reports whether it did. One that
// can't be written whole before the lease ends, without being renewed, ends the call.
func (c *call) write(l lease.Lease, text []byte) (wrote bool, err error) {
	if !l.Live(time.Now()) {
		return false, nil
	}
	limit := c.socket.holding.engine.opts.WriteTimeout * time.Duration(1+len(text)/stretch)
	ctx, stop := c.socket.holding.guard(c.socket.cut, l, limit)
	defer stop()
	if err := c.ws.Write(ctx, websocket.MessageText, text); err != nil {
		return false, cmp.Or(context.Cause(ctx), err)
	}
	return true, nil
}

// keepAlive tells the shard's position if it has moved, and asks for a sign of life
// in any case. Without a lease it does only that.
func (c *call) keepAlive(l lease.Lease, live bool) error {
	if live {
		if at, moved := c.session.Advance(); moved {
			if _, err := c.write(l, frame.AppendPositionJSON(nil, at)); err != nil {
				return err
			}
		}
	}
	c.pinging.Go(func() {
		ctx, cancel := context.WithTimeout(c.socket.cut, c.socket.holding.engine.opts.WriteTimeout)
		defer cancel()
		if c.ws.Ping(ctx) != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.reading() // a device that says nothing is gone
		}
	})
	return nil
}

// read hears what the device says until that ends.
func (c *call) read(ctx context.Context) error {
	for {
		kind, text, err := c.ws.Read(ctx)
		if err != nil {
			return err
		}
		m, err := parse(text)
		if err != nil || kind != websocket.MessageText {
			return errMessage
		}
		if m.Commit != nil {
			if err := c.commit(*m.Commit); err != nil {
				return err
			}
		}
	}
}

// commit notes what a device has finished: nothing that it wasn't sent.
func (c *call) commit(text string) error {
	id, err := event.ParseID(text)
	if err != nil {
		return errMessage
	}
	if id.Compare(c.session.Cursor()) <= 0 {
		c.socket.holding.note(c.socket.device.ID, id)
	}
	return nil
}

// part closes the connection: in order if there is time, and the device answers.
func (c *call) part(why error) {
	code, reason := farewell(why)
	if code == 0 {
		_ = c.ws.CloseNow() // there is nobody to take leave of
		return
	}
	soon, cancel := context.WithTimeout(c.socket.cut, c.socket.holding.engine.grace)
	defer cancel()
	if c.reading == nil { // somebody has to hear the device's goodbye
		c.ws.CloseRead(soon)
	} else {
		defer context.AfterFunc(soon, c.reading)() // cuts a close that nobody answers
	}
	_ = c.ws.Close(code, reason) // in order or not: it is closed
}

// farewell is the close code and reason for an end; 0 if nobody would hear it.
func farewell(why error) (websocket.StatusCode, string) {
	end, ended := errors.AsType[ending](why)
	switch {
	case ended && end.End == Moved:
		return websocket.StatusGoingAway, "another member comes"
	case ended && end.End == Unlisted:
		return websocket.StatusGoingAway, "the inventory has changed"
	case ended:
		return websocket.StatusGoingAway, "an operator ended this"
	case errors.Is(why, errMessage):
		return websocket.StatusProtocolError, "not of " + Subprotocol
	case errors.Is(why, errNoHello):
		return websocket.StatusPolicyViolation, "the first message has to be hello"
	default:
		return 0, ""
	}
}

// endOf names the end of a call.
func endOf(err error) End {
	end, ended := errors.AsType[ending](err)
	switch {
	case ended:
		return end.End
	case errors.Is(err, errStalled):
		return Stalled
	case errors.Is(err, errLapsed):
		return Lapsed
	case errors.Is(err, errMessage), errors.Is(err, websocket.ErrMessageTooBig):
		return BadMessage
	case websocket.CloseStatus(err) == overrun:
		return Superseded
	default:
		return DeviceGone
	}
}
