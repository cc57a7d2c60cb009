package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"downlink/examples/hunt/players"
)

// A crowds is the processes of players of one run.
type crowds struct {
	running []*process

	mu      sync.Mutex // guards what follows
	latest  []players.Second
	reports []*players.Report
}

// lead is how long before the beginning the players are started, so that all of
// their processes are there when the first may come.
const lead = 2 * time.Second

// run lets one hunt happen.
func run(ctx context.Context, o options) (s *summary, err error) {
	h, err := read(o)
	if err != nil {
		return nil, err
	}
	place, err := build(ctx, o, h)
	defer place.close()
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(lead + h.Warm)
	all, err := gather(o, h, place, begin)
	defer all.end()
	if err != nil {
		return nil, err
	}
	s = &summary{Kind: o.kind, Gateways: o.gateways, Crowds: o.crowds, Players: h.Load.Players, hunt: h, On: machine()}
	if err := s.follow(ctx, place, all, begin); err != nil {
		return nil, err
	}
	s.conclude(ctx, place, all.report())
	return s, ctx.Err()
}

// gather starts the players, in as many processes as it takes.
func gather(o options, h hunt, p *place, begin time.Time) (*crowds, error) {
	c := &crowds{latest: make([]players.Second, o.crowds), reports: make([]*players.Report, o.crowds)}
	path, err := own()
	if err != nil {
		return c, err
	}
	for i := range o.crowds {
		first, end := i*h.Load.Players/o.crowds, (i+1)*h.Load.Players/o.crowds
		told, err := json.Marshal(task{h.Load, p.game, begin.UnixMilli(), first, end - first})
		if err != nil {
			return c, err
		}
		one, err := start("players", path, []string{"-crowd", string(told)}, func(text string) { c.hear(i, text) })
		if err != nil {
			return c, err
		}
		c.running = append(c.running, one)
	}
	return c, nil
}

// hear takes what one of the processes says.
func (c *crowds) hear(i int, text string) {
	var said line
	if json.Unmarshal([]byte(text), &said) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if said.Second != nil {
		c.latest[i] = *said.Second
	}
	if said.Report != nil {
		c.reports[i] = said.Report
	}
}

// second is how all players stand together.
func (c *crowds) second() players.Second {
	sum := players.Second{BoardP95: -1, WaitP95: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.latest {
		sum = sum.Plus(s)
	}
	return sum
}

// report is what came of all of them; nil if one of them didn't say it.
func (c *crowds) report() *players.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := &players.Report{Boards: players.Counts{}, Sights: players.Counts{}, Waits: players.Counts{}}
	for _, r := range c.reports {
		if r == nil {
			return nil
		}
		sum.Add(r)
	}
	return sum
}

func (c *crowds) end() {
	for _, one := range c.running {
		one.end()
	}
}

// ended reports whether all players have gone home; an error says that one of
// their processes went otherwise.
func (c *crowds) ended() (bool, error) {
	for _, one := range c.running {
		select {
		case <-one.ended:
			if one.err != nil {
				return false, fmt.Errorf("the players have ended: %w\n%s", one.err, one.said.text())
			}
		default:
			return false, nil
		}
	}
	return true, nil
}

// follow takes a sample a second until the players have gone home.
func (s *summary) follow(ctx context.Context, p *place, all *crowds, begin time.Time) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			over, err := all.ended()
			if err := errors.Join(err, p.died()); err != nil {
				return err
			}
			if over {
				return nil
			}
			if at := now.Sub(begin); at >= 0 && at <= s.hunt.Load.Last {
				s.Samples = append(s.Samples, take(ctx, p, at, all.second()))
			}
		}
	}
}

// A sample is how all stood at one moment. What couldn't be asked is -1.
type sample struct {
	players.Second
	Memory      float64 // of Redis: used / maxmemory
	Refused     int64   // commands that Redis refused for want of memory, total
	Admission   float64 // the governor's ratio for players
	Admitted    float64 // how many may play by that; 0: nobody says
	Connections float64 // that the gateways allow, together
	Publish     float64 // ratio, the lowest
	Rate        float64 // entries a second that the gateways allow, together; 0: not limited
	Streams     float64 // of the gateways, together
	Lag         float64 // entries that a gateway is behind, the most
	Outbox      float64 // events of players that wait in the game
}

func take(ctx context.Context, p *place, at time.Duration, seen players.Second) sample {
	s := sample{Second: seen, Memory: -1, Refused: -1, Outbox: -1, Admission: 1, Publish: 1}
	s.At = at.Seconds()
	if full, err := look(ctx, p.redis); err == nil && full.most > 0 {
		s.Memory, s.Refused = full.used/full.most, full.refused
	}
	if m, err := measure(ctx, p.game); err == nil {
		s.Outbox = m["hunt_outbox_events"]
	}
	if p.governor != "" {
		m, err := measure(ctx, p.governor)
		if err != nil {
			s.Admission, s.Admitted = -1, -1
		} else {
			s.Admission, s.Admitted = m[`downlink_throttle_ratio{lever="admission"}`], m[`downlink_governor_maximum{lever="admission"}`]
		}
	}
	for _, g := range p.gateways {
		m, err := measure(ctx, g.backend)
		if err != nil {
			s.Publish, s.Rate, s.Streams, s.Lag = -1, -1, -1, -1
			return s
		}
		s.Publish = min(s.Publish, m[`downlink_throttle_ratio{lever="publish"}`])
		s.Rate += m[`downlink_governor_maximum{lever="publish"}`]
		s.Connections += m[`downlink_governor_maximum{lever="admission"}`]
		s.Streams += m["sse_active_connections"]
		s.Lag = max(s.Lag, m[`downlink_governor_signal{signal="tail_lag"}`])
	}
	return s
}
