package shard

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
)

// memlog is a shard's log in memory with its whole history, so that a test can
// tell what a device should have got.
type memlog struct {
	history []eventlog.Entry // everything that was ever appended
	swept   int              // history[:swept] was removed
	state   eventlog.State
	fail    atomic.Bool // answer with ErrUnavailable
	ranges  int         // calls of Range

	// between, if set, is called before and after each look at the log: what
	// others do in the meantime.
	between func()
	inside  bool
}

// meanwhile lets the others act, but not while they are at it already.
func (l *memlog) meanwhile() {
	if l.between == nil || l.inside {
		return
	}
	l.inside = true
	l.between()
	l.inside = false
}

func newMemlog() *memlog {
	start := event.ID{Ms: 1000}
	return &memlog{state: eventlog.State{Head: start, Swept: start, Since: start, Founded: start}}
}

func (l *memlog) append(e event.Event) event.ID {
	l.state.Head = l.state.Head.Next()
	l.history = append(l.history, eventlog.Entry{ID: l.state.Head, Event: e})
	return l.state.Head
}

// superseded reports whether a newer event has the target and the key of an entry.
func (l *memlog) superseded(i int) bool {
	e := l.history[i].Event
	return e.Key != "" && slices.ContainsFunc(l.history[i+1:], func(newer eventlog.Entry) bool {
		return newer.Event.Target == e.Target && newer.Event.Key == e.Key
	})
}

func (l *memlog) after(id event.ID) []eventlog.Entry {
	held := l.history[l.swept:]
	i := slices.IndexFunc(held, func(e eventlog.Entry) bool { return id.Less(e.ID) })
	if i < 0 {
		return nil
	}
	return held[i:]
}

func (l *memlog) sweep(n int) {
	for ; n > 0 && l.swept < len(l.history); n-- {
		l.state.Swept = l.history[l.swept].ID
		l.swept++
	}
}

func (l *memlog) noted(targets []string) event.ID {
	var high event.ID
	for _, e := range l.history[:l.swept] {
		if slices.Contains(targets, e.Event.Target) {
			high = e.ID
		}
	}
	return high
}

func (l *memlog) Judge(_ context.Context, _ int, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	if l.fail.Load() {
		return nil, eventlog.State{}, eventlog.ErrUnavailable
	}
	l.meanwhile()
	defer l.meanwhile()
	reasons := make([]event.Reason, len(questions))
	for i, q := range questions {
		held := slices.ContainsFunc(l.history[l.swept:], func(e eventlog.Entry) bool { return e.ID == q.Cursor })
		reasons[i] = l.state.Judge(q.Cursor, held, l.noted(q.Targets))
	}
	return reasons, l.state, nil
}

// Range gives at most three entries a page, whatever maxBytes says.
func (l *memlog) Range(_ context.Context, _ int, after, upTo event.ID, _ int) (eventlog.Page, error) {
	l.ranges++
	if l.fail.Load() {
		return eventlog.Page{}, eventlog.ErrUnavailable
	}
	l.meanwhile()
	defer l.meanwhile()
	page := eventlog.Page{Through: upTo}
	for _, e := range l.after(after) {
		if upTo.Less(e.ID) {
			break
		}
		if len(page.Entries) == 3 {
			page.Through = page.Entries[2].ID
			break
		}
		page.Entries = append(page.Entries, e)
	}
	return page, nil
}

// listener is a subscriber with room for a few messages.
type listener struct {
	room    int
	pending []*Message
	resyncs []resynced
}

type resynced struct {
	reason event.Reason
	at     event.ID
}

func (l *listener) Offer(m *Message) (taken, replaced bool) {
	kept := slices.DeleteFunc(slices.Clone(l.pending), m.Replaces)
	if len(kept) >= l.room {
		return false, false
	}
	replaced = len(kept) < len(l.pending)
	l.pending = append(kept, m)
	return true, replaced
}

func (l *listener) Resync(reason event.Reason, at event.ID, _ time.Duration) {
	l.pending = nil
	l.resyncs = append(l.resyncs, resynced{reason, at})
}

func (l *listener) ids() []event.ID {
	ids := []event.ID{}
	for _, m := range l.pending {
		ids = append(ids, m.ID)
	}
	return ids
}

// gateway is one shard with the tail's duties.
type gateway struct {
	*Shard
	log    *memlog
	asking bool // the tail waits for Overtaken
}

func newGateway(log *memlog, hotBytes int) *gateway {
	set := NewSet(log, Options{
		Shards: 1, HotBytes: limits.Always(hotBytes), StreamsPerDevice: limits.Always(4), PageBytes: 1, MaxLaps: 1,
		Pacer: NewPacer(time.Millisecond), Metrics: NewMetrics(nil),
	})
	return &gateway{Shard: set.shards[0], log: log}
}

// follow dispatches up to n entries, and asks first if the sweep was faster.
func (g *gateway) follow(n int) {
	if g.asking {
		return
	}
	if pos := g.Position(); pos.Less(g.log.state.Swept) {
		g.asking = true
		_, err := g.Overtaken(context.Background())
		g.asking = false
		if err != nil || g.Position().Less(g.log.state.Swept) {
			return // the sweep was faster again
		}
	}
	entries := g.log.after(g.Position())
	g.Dispatch(entries[:min(n, len(entries))])
}

// laps runs laps until nobody waits any more.
func (g *gateway) laps() error {
	for range 1000 {
		select {
		case <-g.wake:
		default:
			return nil
		}
		if err := g.lap(context.Background()); err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	return errors.New("laps without end")
}
