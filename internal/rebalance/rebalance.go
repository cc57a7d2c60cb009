// Package rebalance owns a fleet's evening out: what each gateway says of how
// many streams it holds, and how a gateway that holds far more than the mean lets
// its surplus go. What gateways say is for observation alone: no device is sent
// anywhere by it, because what stands in front decides where a stream that was
// ended begins again. Its invariant: a stream is ended only by a picture of the
// fleet that is a moment old, in which this gateway is above the mean.
package rebalance

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"downlink/internal/ageing"
	"downlink/internal/session"
)

// A Board is where gateways tell each other how they stand.
type Board interface {
	// Post notes a word under a name, for a while, and returns all words that are
	// noted, by name. When the while is over is not said by this machine's clock.
	Post(ctx context.Context, name, word string, ttl time.Duration) (all map[string]string, err error)
}

// Options for a Balancer.
type Options struct {
	// Name is this gateway's, and no other's.
	Name string
	// Single says that there can't be another gateway: then nothing happens.
	Single bool
	// Rate is how many streams a second all gateways together let go; asked when it
	// is needed. 0: none, and it only says what it would do.
	Rate func() int
	// Threshold is how far above the mean a gateway may be, in percent of it.
	Threshold func() int
	// After is how long the same gateways must have been there and this one must have
	// had a surplus, and how old a stream must be, before one is ended.
	After time.Duration
	// Most is how many streams there may be here.
	Most func() int
	// Retry is when a device comes back, on the average.
	Retry   time.Duration
	Roster  *session.Roster
	Ages    *ageing.Book
	Metrics *Metrics
	Logger  *slog.Logger
}

const (
	// round is how often gateways tell each other how they stand, and so the most
	// that a picture is old by which a stream ends.
	round = 2 * time.Second
	// noted is for how long a word counts: a gateway may miss four rounds.
	noted = 5 * round
	// answer bounds a round's call.
	answer = round / 2
)

// A Balancer evens out one gateway. Safe for concurrent use.
type Balancer struct {
	opts Options

	// Of Run alone.
	fleet  []string  // the gateways of the last picture
	since  time.Time // they have been the same, and there has been a surplus
	course *course   // nil: nothing is being let go
	trial  trial
	pause  time.Time // until then it isn't tried
	lately []batch   // that may not be back yet

	mu        sync.Mutex
	status    Status
	elsewhere int
}

// New makes a balancer, which does nothing before Run.
func New(o Options) *Balancer {
	b := &Balancer{opts: o}
	b.show(Status{State: b.blind()}, 0)
	return b
}

// blind is the state without a picture.
func (b *Balancer) blind() State {
	if b.opts.Single {
		return Single
	}
	return Unknown
}

// Run evens out until ctx ends; then it returns nil. taking reports whether this
// gateway takes devices at the moment: ready, not on its way out, and with the log.
func (b *Balancer) Run(ctx context.Context, board Board, taking func() bool) error {
	tick := time.NewTicker(round)
	defer tick.Stop()
	for {
		b.round(ctx, board, taking)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// round looks at the fleet, and lets go what is due until the next round.
func (b *Balancer) round(ctx context.Context, board Board, taking func() bool) {
	s, p := b.look(ctx, board, taking)
	if s.State == "" {
		s.State = b.decide(p, &s)
	}
	if s.State != Shedding {
		b.finish(s.State)
	}
	b.show(s, p.elsewhere)
}

// look is this gateway's place in a fresh picture. The state is empty if it might
// let streams go.
func (b *Balancer) look(ctx context.Context, board Board, taking func() bool) (Status, picture) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	if !taking() {
		b.fleet = nil
		_, _ = board.Post(ctx, b.opts.Name, silence, noted) // or they find out when the last word has had its time
		return Status{State: Absent}, picture{}
	}
	mine := word{streams: b.streams(), away: b.away()}
	mine.room = max(b.opts.Most()-mine.streams, 0)
	all, err := board.Post(ctx, b.opts.Name, mine.String(), noted)
	if err != nil { // the log's own metrics count it, and its reader says so
		return Status{State: Unknown}, picture{}
	}
	words := readAll(all)
	words[b.opts.Name] = mine
	if now := names(words); !slices.Equal(now, b.fleet) {
		b.fleet, b.since = now, time.Now()
		b.trial, b.pause = trial{}, time.Time{} // devices may have come back because another has crashed
	}
	p := draw(words, b.opts.Name)
	s := Status{Gateways: p.gateways, Mean: p.mean, Allowed: p.allowed(b.opts.Threshold())}
	switch {
	case p.gateways == 1:
		s.State = Alone
	case p.mine > s.Allowed || b.course != nil && p.surplus() > 0:
		s.Surplus = p.surplus()
		s.PerSecond = p.part() * float64(b.opts.Rate())
	default:
		s.State = Even
		b.since = time.Now()
	}
	return s, p
}

// decide says what is done about a surplus, and does it.
func (b *Balancer) decide(p picture, s *Status) State {
	now := time.Now()
	switch {
	case b.opts.Rate() <= 0:
		return Off
	case now.Sub(b.since) < b.opts.After:
		return Settling
	case now.Before(b.pause):
		return Returning
	case p.room <= 0:
		return Full
	}
	if b.course == nil {
		c := &course{began: now, old: now.Add(-b.opts.After), last: now.Add(-round)}
		if len(b.opts.Roster.Some(1, c.may)) == 0 {
			return Spent
		}
		b.course = c
		b.opts.Logger.Info("this gateway holds far more streams than the mean: the surplus is let go, and what stands in front sends it on",
			"streams", p.mine, "mean", int(p.mean), "gateways", p.gateways, "surplus", s.Surplus, "per_second", s.PerSecond)
	}
	return b.shed(p, s.PerSecond, now)
}

// shed lets go what is due in one round.
func (b *Balancer) shed(p picture, perSecond float64, now time.Time) State {
	c := b.course
	due := min(c.due(perSecond, now), p.surplus(), p.room)
	if !c.proven && b.trial.wants() <= 0 {
		if !b.trial.over(now, b.opts.Retry) {
			return Shedding
		}
		if !b.helps(now) {
			return Returning
		}
	}
	if !c.proven {
		due = min(due, b.trial.wants())
	}
	some := b.opts.Roster.Some(due, c.may)
	for _, s := range some {
		b.opts.Ages.Enter(s, rand.N(round*9/10), session.Rebalanced, 0)
		if !c.proven {
			b.trial.note(s.Device(), now)
		}
	}
	c.owed -= float64(len(some))
	c.gone += len(some)
	b.lately = append(b.lately, batch{now, len(some)})
	if due > 0 && len(some) == 0 {
		return Spent
	}
	return Shedding
}

// A batch is what was let go in one round.
type batch struct {
	at time.Time
	n  int
}

// away is how many streams were let go whose devices aren't in anybody's word yet:
// they would make the mean look lower. Rather too many, so it is never too low.
func (b *Balancer) away() (n int) {
	back := time.Now().Add(-2*round - b.opts.Retry) // a round to end, and one until the word is said
	b.lately = slices.DeleteFunc(b.lately, func(a batch) bool { return a.at.Before(back) })
	for _, a := range b.lately {
		n += a.n
	}
	return n
}

// helps ends the trial, and reports whether it helps to let devices go.
func (b *Balancer) helps(now time.Time) bool {
	let, back := len(b.trial.devices), b.trial.back(b.opts.Roster)
	b.trial = trial{}
	if b.course.proven = back <= let*3/4; b.course.proven {
		return true
	}
	b.pause = now.Add(pause)
	b.opts.Logger.Warn("devices that were let go come straight back here, so no more are: whatever stands in front sends each to the same gateway, or they keep their HTTP/2 connection",
		"let_go", let, "back", back, "next_try_in", pause)
	return false
}

// finish ends a course, if there is one.
func (b *Balancer) finish(why State) {
	if b.course == nil {
		return
	}
	b.opts.Logger.Info("no more streams are let go", "let_go", b.course.gone, "took", time.Since(b.course.began).Round(time.Second), "now", why)
	b.course = nil
}

// streams is how many there are here. While some are let go those that have ended
// don't count: one that takes its last word slowly is on the roster for a while. It
// isn't always so exact, because that means to look at each of them.
func (b *Balancer) streams() int {
	if b.course == nil {
		return b.opts.Roster.Len()
	}
	return b.opts.Roster.Living()
}

// show publishes how it stands.
func (b *Balancer) show(s Status, elsewhere int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.elsewhere = s, elsewhere
	b.opts.Metrics.show(s)
}

// Status says how this gateway stands in the fleet.
func (b *Balancer) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Elsewhere is for how many streams more the other gateways have room, as they said
// a moment ago; 0 if nobody knows.
func (b *Balancer) Elsewhere() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.elsewhere
}
