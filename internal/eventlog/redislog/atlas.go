package redislog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"downlink/internal/eventlog"
)

const (
	// lookEvery is how often it is asked who serves what, while nothing fails.
	lookEvery = time.Second
	// lookAgain is how soon it is asked again while something does.
	lookAgain = 50 * time.Millisecond
	// lookLimit bounds one look.
	lookLimit = time.Second
)

// A locator knows who is to be asked who serves what.
type locator interface {
	// look draws the map.
	look(ctx context.Context) (chart, error)
	close()
}

// An atlas knows at which server each home is, and holds the connections.
type atlas struct {
	// Set at construction.
	opts    *Options
	way     target // in, where servers have no URL of their own
	cluster bool
	locator locator // nil: servers stay where they are
	base    context.Context
	stop    context.CancelFunc
	doubts  chan struct{}
	running sync.WaitGroup

	// Guarded by mu.
	mu       sync.Mutex
	closed   bool
	homes    []*home
	nodes    map[string]*node
	standIns map[string]*node // replicas that tails read
	lost     bool             // nobody can say who serves what
}

func newAtlas(opts *Options) *atlas {
	a := &atlas{opts: opts, doubts: make(chan struct{}, 1), nodes: make(map[string]*node), standIns: make(map[string]*node)}
	a.base, a.stop = context.WithCancel(context.Background())
	return a
}

// settle makes a home at a server.
func (a *atlas) settle(t target, slot int) *home {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := &home{atlas: a, slot: slot}
	h.sit(a.nodeLocked(t))
	a.homes = append(a.homes, h)
	return h
}

func (h *home) sit(n *node) {
	s := &seat{node: n}
	s.left, s.leave = context.WithCancel(n.base)
	if old := h.at.Swap(s); old != nil {
		old.leave()
	}
}

// visit gives the connections to a server.
func (a *atlas) visit(addr string) *node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodeLocked(a.way.at(addr))
}

func (a *atlas) nodeLocked(t target) *node {
	if n := a.nodes[t.addr]; n != nil {
		return n
	}
	n := newNode(t, a.opts)
	n.openAppends()
	if a.closed {
		n.close(eventlog.ErrClosed)
		return n
	}
	a.nodes[t.addr] = n
	return n
}

// reseat moves a home to another server, unless it has left that seat already.
func (a *atlas) reseat(h *home, from *seat, addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.at.Load() != from || from.node.addr == addr || a.closed {
		return
	}
	h.sit(a.nodeLocked(a.way.at(addr)))
	a.opts.Metrics.moves.Inc()
}

// doubt has the map drawn anew soon.
func (a *atlas) doubt() {
	if a.locator == nil {
		return
	}
	select {
	case a.doubts <- struct{}{}:
	default:
	}
}

// start keeps the map up to date until close.
func (a *atlas) start() {
	if a.locator == nil {
		return
	}
	a.running.Go(func() {
		for {
			select {
			case <-a.base.Done():
				return
			case <-time.After(lookEvery):
			case <-a.doubts:
			}
			a.survey()
			select {
			case <-a.base.Done():
				return
			case <-time.After(lookAgain):
			}
		}
	})
}

// survey draws the map and moves whoever is to move.
func (a *atlas) survey() {
	ctx, cancel := context.WithTimeout(a.base, lookLimit)
	defer cancel()
	c, err := a.locator.look(ctx)
	if a.base.Err() != nil {
		return
	}
	a.mu.Lock()
	if err != nil {
		if !a.lost {
			a.opts.Logger.Warn("nobody says which server of Redis is the primary; asking on", "error", err)
		}
		a.lost = true
		a.mu.Unlock()
		return
	}
	a.lost = false
	homes := a.homes
	a.mu.Unlock()
	moved := map[string]int{}
	for _, h := range homes {
		s, addr := h.at.Load(), c.at(h.slot)
		if addr == "" || s.node.addr == addr || time.Now().UnixNano() < h.settled.Load() {
			continue
		}
		a.reseat(h, s, addr)
		moved[addr]++
	}
	for addr, n := range moved {
		a.opts.Logger.Warn("shards are served by another server of Redis now", "server", addr, "groups", n)
	}
	a.retire(c)
}

// retire closes the connections to servers that serve nothing any more.
func (a *atlas) retire(c chart) {
	a.mu.Lock()
	defer a.mu.Unlock()
	needed := c.servers()
	for _, h := range a.homes {
		needed[h.node().addr] = true
	}
	for addr, n := range a.nodes {
		if !needed[addr] {
			delete(a.nodes, addr)
			a.running.Go(func() { n.close(unavailable(errMoved)) })
		}
	}
}

// close ends every call and connection.
func (a *atlas) close() {
	a.mu.Lock()
	a.closed = true
	nodes := slices.AppendSeq(slices.Collect(maps.Values(a.nodes)), maps.Values(a.standIns))
	a.mu.Unlock()
	a.stop()
	var closing sync.WaitGroup
	for _, n := range nodes {
		closing.Go(func() { n.close(eventlog.ErrClosed) })
	}
	closing.Wait()
	a.running.Wait()
	if a.locator != nil {
		a.locator.close()
	}
}

// A chart says who serves which slots. Without a cluster there is one stretch.
type chart struct {
	epoch     uint64 // the higher, the later
	stretches []stretch
}

type stretch struct {
	from, to int // both included
	addr     string
}

// at is who serves a slot; empty if nobody does.
func (c chart) at(slot int) string {
	for _, s := range c.stretches {
		if s.from <= slot && slot <= s.to {
			return s.addr
		}
	}
	return ""
}

// servers lists who serves anything.
func (c chart) servers() map[string]bool {
	out := make(map[string]bool)
	for _, s := range c.stretches {
		out[s.addr] = true
	}
	return out
}

// secondOpinions is how long the others may take once one has answered.
const secondOpinions = 200 * time.Millisecond

// latest asks all at once and returns the answer of the highest epoch: one
// that was frozen, or is cut off, may believe what was true long ago.
func latest(ctx context.Context, all []*node, ask func(context.Context, *node) (chart, error)) (chart, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		chart chart
		err   error
	}
	answers := make(chan answer, len(all))
	for _, n := range all {
		go func() { // ends with ctx: each call is bounded by it
			c, err := ask(ctx, n)
			answers <- answer{c, err}
		}()
	}
	best, found := chart{}, false
	var failure error
	var enough <-chan time.Time
	for range all {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
				failure = a.err
				continue
			case !found || a.chart.epoch > best.epoch:
				best, found = a.chart, true
			}
			if enough == nil {
				enough = time.After(secondOpinions)
			}
		case <-enough:
			return best, nil
		case <-ctx.Done():
			if failure == nil {
				failure = unavailable(ctx.Err())
			}
			if found {
				return best, nil
			}
			return best, failure
		}
	}
	if found {
		return best, nil
	}
	return best, failure
}
