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
	// Each is told how things stand, once a second. May be nil.
	Each func(Second)
}

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
	c := &crowd{opts: o, game: newAPI(o.Game), begin: o.Begin}
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
	c.quiet(whole)
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

const (
	// calm is for how long no drop must have come before nothing is under way any
	// more, and patience how long that is waited for.
	calm     = 3 * time.Second
	patience = 20 * time.Second
)

// quiet waits until what was on its way at the end has arrived.
func (c *crowd) quiet(ctx context.Context) {
	until := time.Now().Add(patience)
	for drops, since := c.tally.drops.Load(), time.Now(); time.Since(since) < calm && time.Now().Before(until); {
		if !pause(ctx, 100*time.Millisecond) {
			return
		}
		if now := c.tally.drops.Load(); now != drops {
			drops, since = now, time.Now()
		}
	}
}

// report asks the game how all players stand, and compares.
func (c *crowd) report(ctx context.Context, last Second) *Report {
	r := &Report{Last: last, Boards: c.tally.boards.counts(), Sights: c.tally.sights.counts(), Waits: c.tally.waits.counts(), Impatient: c.tally.impatient.Load(), Drops: c.tally.drops.Load(), Joined: last.Playing}
	r.Longest = time.Duration(c.tally.longest.Load())
	var asking sync.WaitGroup
	var sum sync.Mutex
	turns := make(chan struct{}, 32)
	for _, p := range c.players {
		if stage(p.stage.Load()) != playing || link(p.link.Load()) != open {
			continue
		}
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			missing, err := p.missing(ctx)
			sum.Lock()
			defer sum.Unlock()
			r.Missing += int64(missing)
			if err != nil {
				r.Unread++
			}
		})
	}
	asking.Wait()
	return r
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
