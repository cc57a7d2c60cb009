// Package players owns the people of a hunt: many players in one process, each of
// whom joins, listens to live updates as a browser's EventSource does, looks for
// the cross and sends the answer, and what they get to see of it. It owns no
// server, and knows the game and the gateways by their addresses only. Its
// invariant: who can't play is counted as that, and no wait, freeze or lost drop
// is left out because its player gave up: nobody gives up before the end.
package players

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Options are what a run of players needs; all are required unless said otherwise.
type Options struct {
	Load Load
	Game string // the URL of the game
	// Begin is when the first may arrive; several processes of one run share it.
	// Zero: now.
	Begin time.Time
	// First and Count are which of the load's players these are; Count 0: all.
	First, Count int
	// Patience is how long, in the end, is waited for drops that haven't come.
	Patience time.Duration
	// Each is told how things stand, once a second. May be nil.
	Each func(Second)

	dial dial // nil: over the network
}

// A dial opens a connection.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// A crowd is the players of this process.
type crowd struct {
	opts    Options
	game    *api
	begin   time.Time
	players []*player
	tally   tally
	moves   moves
}

// Run lets players play until the load's end, or ctx ends, and reports.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Load.Check(); err != nil {
		return nil, err
	}
	if o.Count == 0 {
		o.Count = o.Load.Players - o.First
	}
	if o.First < 0 || o.Count < 1 || o.First+o.Count > o.Load.Players {
		return nil, fmt.Errorf("players %d to %d aren't among the load's %d", o.First, o.First+o.Count-1, o.Load.Players)
	}
	if o.Begin.IsZero() {
		o.Begin = time.Now()
	}
	if o.dial == nil {
		o.dial = (&net.Dialer{Timeout: opening}).DialContext
	}
	c := &crowd{opts: o, game: newAPI(o.Game, o.dial), begin: o.Begin}
	for n := range o.Count {
		c.players = append(c.players, newPlayer(c, o.First+n))
	}
	return c.play(ctx), nil
}

// play is the run itself: all that is there plays until the end, then what is
// still under way may arrive.
func (c *crowd) play(ctx context.Context) *Report {
	whole, leave := context.WithCancel(ctx)
	end, stop := context.WithDeadline(whole, c.begin.Add(c.opts.Load.Last))
	var playing, listening sync.WaitGroup
	for _, p := range c.players {
		playing.Go(func() { p.live(end, whole, &listening) })
	}
	playing.Go(func() { c.look(end) })
	last := c.watch(end)
	playing.Wait()
	stop()
	report := c.report(whole, last)
	leave()
	listening.Wait()
	c.game.client.CloseIdleConnections()
	return report
}

// watch tells once a second how things stand, and returns how they stood last.
func (c *crowd) watch(ctx context.Context) Second {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := c.second(c.begin)
	for {
		select {
		case <-ctx.Done():
			return last
		case now := <-tick.C:
			if now.Before(c.begin) {
				continue
			}
			last = c.second(now)
			if c.opts.Each != nil {
				c.opts.Each(last)
			}
		}
	}
}

// second counts how all players stand.
func (c *crowd) second(now time.Time) Second {
	s := c.tally.second()
	s.At = now.Sub(c.begin).Seconds()
	s.Version = c.moves.latest()
	missed := c.moves.before(now.Add(-freeze))
	for _, p := range c.players {
		p.count(&s, now, missed)
	}
	s.Freezes = c.tally.freezes.Load()
	return s
}

// calm is for how long what is under way at the end may arrive in any case.
const calm = 2 * time.Second

// report waits for what was on its way at the end, and asks the game what should
// have arrived.
func (c *crowd) report(ctx context.Context, last Second) *Report {
	until := time.Now().Add(c.opts.Patience)
	left := slices.DeleteFunc(slices.Clone(c.players), func(p *player) bool {
		return stage(p.stage.Load()) != playing || link(p.link.Load()) != open
	})
	var missing, unread int64
	for pause(ctx, calm) {
		left, missing, unread = c.compare(ctx, left)
		if len(left) == 0 || time.Now().After(until) {
			break
		}
	}
	return &Report{
		Last: last, Joined: last.Playing, Longest: time.Duration(c.tally.longest.Load()),
		Boards: c.tally.boards.counts(), Sights: c.tally.sights.counts(), Waits: c.tally.waits.counts(),
		Impatient: c.tally.impatient.Load(), Drops: c.tally.drops.Load(), Missing: missing, Unread: unread,
	}
}

// compare asks the game how these players stand, and returns those to whom something
// hasn't come, or of whom it couldn't be asked.
func (c *crowd) compare(ctx context.Context, all []*player) (left []*player, missing, unread int64) {
	var asking sync.WaitGroup
	var sum sync.Mutex
	turns := make(chan struct{}, 32)
	for _, p := range all {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			n, err := p.missing(ctx)
			if n == 0 && err == nil {
				return
			}
			sum.Lock()
			defer sum.Unlock()
			left, missing = append(left, p), missing+int64(n)
			if err != nil {
				unread++
			}
		})
	}
	asking.Wait()
	return left, missing, unread
}

// pause waits; false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
