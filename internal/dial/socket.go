package dial

import (
	"context"
	"errors"
	"net/url"
	"time"

	"downlink/internal/egress"
	"downlink/internal/inventory"
	"downlink/internal/lease"
)

// A socket is the link of a device that serves a WebSocket: it is dialled again
// and again, and served while it is open.
type socket struct {
	// Set at construction.
	holding *holding
	device  inventory.Device
	at      standing
	alarm   chan struct{}   // capacity one: something may have changed
	ctx     context.Context // ends when nothing may be written any more
	quit    context.CancelCauseFunc
	cut     context.Context // ends when nothing is waited for any more
	hangUp  context.CancelFunc
	over    chan struct{} // closed at the end
}

func newSocket(h *holding, d inventory.Device) *socket {
	s := &socket{holding: h, device: d, alarm: make(chan struct{}, 1), over: make(chan struct{})}
	s.at.metrics = h.engine.opts.Metrics
	s.ctx, s.quit = context.WithCancelCause(context.Background())
	s.cut, s.hangUp = context.WithCancel(context.Background())
	return s
}

func (s *socket) begin() {
	s.at.is(Dialling)
	go s.run()
}

// Wake implements session.Sink.
func (s *socket) Wake() {
	select {
	case s.alarm <- struct{}{}:
	default:
	}
}

func (s *socket) wake() { s.Wake() }

// Peer implements session.Sink.
func (s *socket) Peer() (address, protocol string) { return hostOf(s.device.URL), "WebSocket" }

func (s *socket) state() State { return s.at.state() }

// An ending is an End as an error.
type ending struct{ End }

func (e ending) Error() string { return string(e.End) }

// end implements link.
func (s *socket) end(ctx context.Context, why End) {
	s.quit(ending{why})
	select {
	case <-s.over:
	case <-ctx.Done():
		s.hangUp()
		<-s.over
	}
}

// run keeps the device connected until the link ends.
func (s *socket) run() {
	defer close(s.over)
	defer s.hangUp()
	defer s.at.is("")
	o := &s.holding.engine.opts
	since := time.Now()
	for attempt := 0; s.ctx.Err() == nil; attempt++ {
		l, ok := s.turn()
		if !ok {
			return
		}
		begun := time.Now()
		wait, err := s.visit(l, since)
		if err != nil {
			s.at.is(Unreachable)
			s.holding.engine.note(s.device.ID, "dial_failed", egress.Told(err).Error())
			wait = o.Backoff.Delay(attempt)
		} else { // it was open
			since = time.Now()
			s.at.is(Dialling)
			if since.Sub(begun) > o.Backoff.Max {
				attempt = -1
			}
			wait = max(wait, o.Backoff.Delay(attempt))
		}
		if !sleep(s.ctx, wait) {
			return
		}
	}
}

// turn waits until the device may be dialled: when the lease lives, and not all at
// once. A member whose lease has lapsed dials nobody: there may be another owner.
func (s *socket) turn() (lease.Lease, bool) {
	for s.awaitLease() && s.holding.engine.pace.wait(s.ctx) {
		if l, live := s.holding.lease(); live {
			return l, true
		}
	}
	return lease.Lease{}, false
}

func (s *socket) awaitLease() bool {
	for {
		if _, live := s.holding.lease(); live {
			return s.ctx.Err() == nil
		}
		select {
		case <-s.ctx.Done():
			return false
		case <-s.alarm:
		}
	}
}

// visit makes one attempt, and serves the device if that goes well. The error is
// of an attempt that failed. wait is how long a device that was open is to be left
// alone.
func (s *socket) visit(l lease.Lease, since time.Time) (wait time.Duration, err error) {
	e := s.holding.engine
	c, result, err := s.dial(l)
	e.opts.Metrics.dialled(result)
	if err != nil {
		return 0, err
	}
	defer e.sockets.Add(-1)
	e.opts.Metrics.Without.Observe(time.Since(since).Seconds())
	s.at.is(Connected)
	why := c.serve()
	e.opts.Metrics.ended(why)
	e.note(s.device.ID, string(why), "")
	e.opts.Logger.Debug("a dialled WebSocket ended", "device", s.device.ID, "reason", why)
	switch why {
	case Ordered:
		return c.session.Retry(), nil
	case Superseded, BadMessage:
		return e.opts.Backoff.Delay(2), nil // it would say so again
	case Moved, Unlisted, Lapsed:
		return 0, nil
	}
	return e.opts.Backoff.Delay(0), nil
}

// errFull: there are as many connections as there may be.
var errFull = errors.New("as many WebSockets are open as max_connections allows")

// hostOf is the host of a URL, for people.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}
