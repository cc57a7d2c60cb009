// Package drain owns a gateway's ordered way out of service, and the pace at
// which it lets its devices go: who begins it, how far it has come, what is left
// of its time. It carries no traffic, and a session's end is the session's
// business. Its invariant: the steps come in one order (not ready; everybody has
// been told when to come back; closing), and nobody is let in any more from the
// second on.
package drain

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"downlink/internal/ageing"
	"downlink/internal/backoff"
	"downlink/internal/rebalance"
	"downlink/internal/session"
)

// A Phase is how far a drain has come.
type Phase string

// The phases, in their order.
const (
	Serving Phase = "serving" // there is no drain
	Waiting Phase = "waiting" // not ready, and still serving who comes: what stands in front hasn't noticed yet
	Telling Phase = "telling" // nobody is let in any more; each device is told when to come back
	Closing Phase = "closing" // connections are closed, at a pace
	Closed  Phase = "closed"  // none is left
)

// Phases lists every phase.
func Phases() []Phase { return []Phase{Serving, Waiting, Telling, Closing, Closed} }

// A Cause is what began a drain.
type Cause string

// The causes.
const (
	BySignal Cause = "signal"
	ByAPI    Cause = "api"
	ByFile   Cause = "file"
)

// Options for a Drain.
type Options struct {
	// Wait is how long what stands in front (a load balancer) may take to notice
	// that the gateway isn't ready. The wait ends earlier when nobody has come
	// for Quiet, if that isn't 0.
	Wait, Quiet time.Duration
	// Rate is how many reconnects a second the other gateways are to see; asked
	// when it is needed. 0: any number, so all connections are closed at once.
	Rate func() int
	// Deadline is how long a drain may take, from its beginning until the process
	// ends, and Last the part of it that what comes after Run needs. 0: any time.
	Deadline, Last time.Duration
	// Retry is when a device comes back that was refused or ended, jittered by
	// half.
	Retry  time.Duration
	Roster *session.Roster
	Ages   *ageing.Book
	// Rebalance says how this gateway stands beside the others, for Status; nil: it
	// isn't said.
	Rebalance func() rebalance.Status
	Metrics   *Metrics
	Logger    *slog.Logger
}

// A Drain is a gateway's way out. Safe for concurrent use.
type Drain struct {
	opts Options

	mu      sync.Mutex
	course  *course       // nil while the gateway serves
	ordered bool          // a signal has come: the process must end
	changed chan struct{} // closed when something of the above, or of the course, has changed
	line    line          // of those who were refused
}

// New makes the way out of a gateway that serves.
func New(o Options) *Drain {
	d := &Drain{opts: o, changed: make(chan struct{})}
	d.opts.Metrics.enter(Serving)
	return d
}

// Begin begins a drain, if there is none. What a signal begins, or finds begun,
// can't be aborted.
func (d *Drain) Begin(by Cause) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by == BySignal {
		d.ordered = true
	}
	if d.course == nil {
		d.course = &course{by: by, phase: Waiting, began: time.Now()}
		d.line = line{}
		d.opts.Metrics.enter(Waiting)
	}
	d.tellLocked()
}

// Hasten ends all waiting: what is left is closed at once, and the devices are
// told to come back over the time that closing would have taken. It does nothing
// while there is no drain.
func (d *Drain) Hasten() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.course != nil && !d.course.hurry {
		d.course.hurry = true
		d.opts.Logger.Info("draining: hastened", "phase", d.course.phase, "connections", d.opts.Roster.Len())
	}
	d.tellLocked()
}

// Abort takes a drain back, and reports whether that could be done: it can't
// once closing has begun, or a signal has come. It does nothing while there is
// none.
func (d *Drain) Abort() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.course
	if c == nil {
		return true
	}
	if d.ordered || c.phase == Closing || c.phase == Closed {
		return false
	}
	c.aborted = true
	d.course = nil
	d.opts.Roster.Reopen()
	d.opts.Metrics.enter(Serving)
	d.opts.Metrics.Aborted.Inc()
	d.opts.Logger.Info("draining: aborted; serving again", "phase", c.phase)
	d.tellLocked()
	return true
}

// tellLocked wakes who waits for a change.
func (d *Drain) tellLocked() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// Ready reports whether devices should be sent here.
func (d *Drain) Ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.course == nil
}

// Refuse reports whether a device that comes now can't be let in any more, and
// when it is to come back: those who are refused come back one after the other,
// at the rate that the others can take.
func (d *Drain) Refuse() (retry time.Duration, refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.course == nil || d.course.phase == Waiting {
		return 0, false
	}
	rate := d.opts.Rate()
	if rate <= 0 {
		return backoff.Jitter(d.opts.Retry, 0.5), true
	}
	return away(d.line.join(float64(rate)), d.opts.Retry), true
}

// Run carries drains out, one after the other if they are aborted, and returns
// when one has come to its end: then nobody is left, or the time is. It returns
// true then, and false when ctx ends before.
func (d *Drain) Run(ctx context.Context) (drained bool) {
	for {
		c := d.await(ctx)
		if c == nil {
			return false
		}
		if d.pass(ctx, c) {
			return ctx.Err() == nil
		}
	}
}

// await waits for a drain to begin; nil if ctx ends before.
func (d *Drain) await(ctx context.Context) *course {
	for {
		d.mu.Lock()
		c, changed := d.course, d.changed
		d.mu.Unlock()
		if c != nil {
			return c
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Finish ends whatever is left at once, lets nobody in any more, and makes the
// gateway unready for good.
func (d *Drain) Finish() {
	d.mu.Lock()
	if d.course == nil {
		d.course = &course{by: BySignal, began: time.Now()}
	}
	d.ordered, d.course.hurry, d.course.phase = true, true, Closed
	d.opts.Metrics.enter(Closed)
	d.tellLocked()
	d.mu.Unlock()
	for i, s := range d.opts.Roster.Close() {
		s.EndWith(session.Draining, d.opts.comeBack(i, 0))
	}
}
