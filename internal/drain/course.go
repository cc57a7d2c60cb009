package drain

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/session"
)

// A course is one drain. Guarded by the Drain's mutex, but for began and by.
type course struct {
	by      Cause
	began   time.Time
	phase   Phase
	hurry   bool // all waiting ends
	aborted bool
	found   int // connections at the beginning of the telling
	told    int
	plan    Plan // as it was made then
}

// pass carries one drain out; false if it was aborted.
func (d *Drain) pass(ctx context.Context, c *course) (over bool) {
	d.opts.Logger.Info("draining: not ready any more; waiting until nothing in front sends devices here",
		"by", c.by, "connections", d.opts.Roster.Len(), "wait", d.opts.Wait)
	if !d.wait(ctx, c) || !d.enter(c, Telling) {
		return ctx.Err() != nil
	}
	sessions := d.opts.Roster.Close()
	if d.isAborted(c) { // it was between the two, and has reopened what was open
		d.opts.Roster.Reopen()
		return false
	}
	d.plan(c, len(sessions))
	if !d.tell(ctx, c, sessions) || !d.enter(c, Closing) {
		d.takeBack(ctx, sessions[:c.told])
		return ctx.Err() != nil
	}
	d.close(ctx, c, sessions)
	d.enter(c, Closed)
	d.opts.Logger.Info("drained", "found", c.found, "left", d.opts.Roster.Len(), "took", time.Since(c.began).Round(time.Millisecond))
	d.linger(ctx, c)
	return true
}

// enter goes on to the next phase; false if the drain was aborted.
func (d *Drain) enter(c *course, next Phase) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.aborted {
		return false
	}
	c.phase = next
	d.opts.Metrics.enter(next)
	d.tellLocked()
	return true
}

func (d *Drain) isAborted(c *course) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return c.aborted
}

// rest rests for a while, less if there is a hurry; false if the drain was
// aborted or ctx has ended.
func (d *Drain) rest(ctx context.Context, c *course, while time.Duration) bool {
	timer := time.NewTimer(while)
	defer timer.Stop()
	for {
		d.mu.Lock()
		hurry, aborted, changed := c.hurry, c.aborted, d.changed
		d.mu.Unlock()
		if aborted || ctx.Err() != nil {
			return false
		}
		if hurry {
			return true
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
			return true
		}
	}
}

func (d *Drain) isHasty(c *course) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return c.hurry
}

// glance is how often it is looked who has come or gone.
const glance = 50 * time.Millisecond

// wait waits until what stands in front sends nobody here any more.
func (d *Drain) wait(ctx context.Context, c *course) bool {
	q := quiet{came: d.opts.Roster.Came(), looked: c.began}
	for !d.isHasty(c) {
		left := d.opts.Wait - time.Since(c.began)
		if left <= 0 {
			break
		}
		if !d.rest(ctx, c, min(left, glance)) {
			return false
		}
		lasts := q.look(d.opts.Roster.Came(), time.Now())
		if d.opts.Quiet > 0 && lasts >= d.opts.Quiet {
			break
		}
	}
	return ctx.Err() == nil
}

// quiet is for how long nobody has come.
type quiet struct {
	came   uint64 // so many, when it was last looked
	looked time.Time
	lasts  time.Duration
}

// look looks again. A process that was held up has let nobody in meanwhile, which
// says nothing of who wanted to come: of that time no more counts than of a look.
func (q *quiet) look(came uint64, now time.Time) time.Duration {
	q.lasts += min(now.Sub(q.looked), 2*glance)
	q.looked = now
	if came != q.came {
		q.came, q.lasts = came, 0
	}
	return q.lasts
}

// plan makes the plan for what was found.
func (d *Drain) plan(c *course, found int) {
	terms := d.opts.terms()
	terms.Wait = time.Since(c.began)
	p := terms.Plan(found)
	d.mu.Lock()
	c.found, c.plan = found, p
	d.mu.Unlock()
	d.opts.Logger.Info("draining: nobody is let in any more; devices are told when to come back",
		"connections", found, "tell", p.Tell, "close", p.Close, "per_second", p.Pace, "at_the_latest_in", p.Left())
}

const (
	// tellRate is how many devices are told a second: a frame to one of them costs
	// about 10 µs, and events go on meanwhile. They are told in groups.
	tellRate  = 10_000
	tellGroup = tellRate / 100
	tellEvery = time.Second / 100
	// settle is the time between the last word to a device and the first end.
	settle = 100 * time.Millisecond
)

// tell gives each device a time of its own to come back, should it be cut before
// its connection is closed in order. In a hurry they get it as they are closed.
func (d *Drain) tell(ctx context.Context, c *course, all []*session.Session) (goOn bool) {
	if d.opts.Rate() <= 0 || len(all) == 0 {
		return true
	}
	for group := range slices.Chunk(all, tellGroup) {
		if d.isHasty(c) {
			return true
		}
		for i, s := range group {
			s.Tell(d.opts.comeBack(c.told+i, 0))
		}
		d.mu.Lock()
		c.told += len(group)
		d.mu.Unlock()
		d.opts.Metrics.Told.Add(float64(len(group)))
		if !d.rest(ctx, c, tellEvery) {
			return false
		}
	}
	return d.rest(ctx, c, settle)
}

// takeBack tells devices that nothing has come of it.
func (d *Drain) takeBack(ctx context.Context, told []*session.Session) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for group := range slices.Chunk(told, tellGroup) {
		for _, s := range group {
			s.Tell(backoff.Jitter(d.opts.Retry, 0.5))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// moment is how long a drain in a hurry waits for last words to be on their way.
const moment = time.Second

// close closes the connections at a pace, each at a random moment of its share of
// the time, and waits for those that take their last bytes slowly. A process that
// was held up doesn't make good for it: that would be a burst.
func (d *Drain) close(ctx context.Context, c *course, all []*session.Session) {
	began := time.Now()
	asked, owed := 0, 0.0
	for last := began.Add(-glance); len(all) > 0; {
		now := time.Now()
		if pace := d.pace(c, len(all)); pace > 0 {
			owed += pace * min(now.Sub(last), 2*glance).Seconds()
		} else {
			owed = math.Inf(1)
		}
		for last = now; len(all) > 0 && owed >= 1; all = all[1:] {
			if s := all[0]; s.Ended() == "" { // or it went by itself
				d.opts.Ages.Enter(s, rand.N(glance), session.Draining, d.opts.comeBack(asked, now.Sub(began)))
				asked++
				owed--
			}
		}
		if !d.tick(ctx) {
			return
		}
	}
	for all := time.Now(); d.opts.Roster.Len() > 0 && d.timeLeft(c) > 0 && (time.Since(all) < moment || !d.isHasty(c)); {
		if !d.tick(ctx) {
			return
		}
	}
}

// pace is how many connections a second are to be closed of those that are left;
// 0: all of them.
func (d *Drain) pace(c *course, left int) float64 {
	if d.isHasty(c) {
		return 0
	}
	return d.opts.terms().pace(left, d.timeLeft(c)-2*glance) // the last ones need their time
}

// tick lets a glance pass; false if ctx ends.
func (d *Drain) tick(ctx context.Context) bool {
	timer := time.NewTimer(glance)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// timeLeft is how much of a drain's time is left for closing.
func (d *Drain) timeLeft(c *course) time.Duration {
	if d.opts.Deadline <= 0 {
		return forEver
	}
	return d.opts.Deadline - d.opts.Last - time.Since(c.began)
}

// lingering is how long a gateway that was asked to drain by the API says that it
// has, before it ends: whoever watches should see it.
const lingering = 5 * time.Second

func (d *Drain) linger(ctx context.Context, c *course) {
	timer := time.NewTimer(min(lingering, max(d.timeLeft(c), 0)))
	defer timer.Stop()
	for {
		d.mu.Lock()
		over, changed := c.by != ByAPI || d.ordered, d.changed
		d.mu.Unlock()
		if over {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-changed:
		}
	}
}
