package tail

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A world is a log of a few shards without a clock, and the dispatcher that
// knows what has to come next. Everything happens when the test says so.
type world struct {
	shards []worldShard
	fault  error // the first thing that was dispatched and should not have been
	away   bool  // no inspection is answered
}

type worldShard struct {
	state   eventlog.State
	entries []eventlog.Entry
	pos     event.ID // what the dispatcher has seen
}

func newWorld(shards int) *world {
	w := &world{shards: make([]worldShard, shards)}
	for i := range w.shards {
		w.found(i, event.ID{Ms: 1000})
	}
	return w
}

// found begins a shard's log anew at a head.
func (w *world) found(i int, head event.ID) {
	w.shards[i].entries = nil
	w.shards[i].state = eventlog.State{Head: head, Swept: head, Since: head, Founded: head}
}

func (w *world) append(i int) {
	s := &w.shards[i]
	s.state.Head = s.state.Head.Next()
	s.entries = append(s.entries, eventlog.Entry{ID: s.state.Head, Event: event.Event{Target: event.Broadcast, Type: "t"}})
}

// sweep removes all but the newest n.
func (w *world) sweep(i, n int) {
	s := &w.shards[i]
	if cut := len(s.entries) - n; cut > 0 {
		s.state.Swept = s.entries[cut-1].ID
		s.entries = slices.Clone(s.entries[cut:])
	}
}

// read is what the server answers; at most most entries of each shard.
func (w *world) read(places []int, after []event.ID, most int) []eventlog.Batch {
	var batches []eventlog.Batch
	for at, i := range places {
		found := w.shards[i].after(after[at])
		if n := min(most, len(found)); n > 0 {
			batches = append(batches, eventlog.Batch{Shard: i, Entries: slices.Clone(found[:n]), Drained: n == len(found)})
		}
	}
	return batches
}

func (s *worldShard) after(id event.ID) []eventlog.Entry {
	from := slices.IndexFunc(s.entries, func(e eventlog.Entry) bool { return id.Less(e.ID) })
	if from < 0 {
		return nil
	}
	return s.entries[from:]
}

func (w *world) Groups() [][]int {
	all := make([]int, len(w.shards))
	for i := range all {
		all[i] = i
	}
	return [][]int{all}
}

func (w *world) Read(context.Context, int, []event.ID) ([]eventlog.Batch, error) {
	panic("the test reads")
}

func (w *world) Inspect(_ context.Context, _ int, positions []event.ID) ([]eventlog.Inspection, error) {
	if w.away {
		return nil, eventlog.ErrUnavailable
	}
	found := make([]eventlog.Inspection, len(positions))
	for i, pos := range positions {
		s := &w.shards[i]
		held := slices.ContainsFunc(s.entries, func(e eventlog.Entry) bool { return e.ID == pos })
		reason := s.state.Judge(pos, held, event.ID{})
		found[i] = eventlog.Inspection{State: s.state, Reason: reason, Lost: reason == event.LogRewound && !held}
	}
	return found, nil
}

func (w *world) Suspect(_ context.Context, i int, reach event.ID) (eventlog.State, error) {
	s := &w.shards[i]
	s.state.AddBreak(eventlog.Break{Boundary: s.state.Head, Reach: reach, Reason: event.LogRewound})
	return s.state, nil
}

func (w *world) Range(_ context.Context, i int, after, _ event.ID, _ int) (eventlog.Page, error) {
	return eventlog.Page{Entries: w.shards[i].after(after)}, nil
}

func (w *world) Start(i int, at event.ID) { w.shards[i].pos = at }

func (w *world) Reset(i int, at event.ID, _ event.Reason) { w.shards[i].pos = at }

func (w *world) Overtaken(_ context.Context, i int) (event.ID, error) {
	w.shards[i].pos = event.Max(w.shards[i].pos, w.shards[i].state.Swept)
	return w.shards[i].pos, nil
}

// Dispatch wants what follows in the log, unless the log has meanwhile become
// another: then nobody can know, and the watchdog will tell everybody.
func (w *world) Dispatch(i int, entries []eventlog.Entry) {
	s := &w.shards[i]
	for _, e := range entries {
		next := s.after(s.pos)
		if w.fault == nil && (len(next) == 0 || next[0].ID != e.ID) {
			w.fault = fmt.Errorf("shard %d: %v was dispatched at %v, the log goes on with %v", i, e.ID, s.pos, next)
		}
		s.pos = e.ID
	}
}

// A stage is a reader in a world, and what is on its way.
type stage struct {
	*reader
	*world
	read      *read   // under way; nil: the reader rests
	restarted bool    // it was ended by a reset
	glances   []*read // whose answers are on their way, oldest first

	replacements uint64
}

// A read is what was asked, and what the server has answered.
type read struct {
	eventlog.Glance
	batches []eventlog.Batch
}

// TestGlancesAndReadsLeaveNoGapAndRepeatNothing draws interleavings of reads,
// glances, sweeps, resets, doubts and answers that come late.
func TestGlancesAndReadsLeaveNoGapAndRepeatNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const shards = 6 // more than soFew
		w := newWorld(shards)
		r := newReader(w, w, Options{Window: time.Hour, Pause: time.Hour, Metrics: NewMetrics(nil), Logger: discard()}, 0, shards, w.Groups()[0])
		s := &stage{reader: r, world: w}
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		shard := rapid.IntRange(0, shards-1)
		some := rapid.SliceOfN(shard, 1, 6)
		t.Repeat(map[string]func(*rapid.T){
			"append by others": func(t *rapid.T) { w.append(shard.Draw(t, "shard")) },
			"append":           func(t *rapid.T) { s.append(some.Draw(t, "shards"), rapid.IntRange(0, 5).Draw(t, "most")) },
			"append more":      func(t *rapid.T) { s.append(some.Draw(t, "shards"), 1000) },
			"hand over":        func(t *rapid.T) { s.handOver(rapid.IntRange(0, 19).Draw(t, "connection") == 0) },
			"hand over more":   func(t *rapid.T) { s.handOver(false) },
			"advance":          func(*rapid.T) { s.advanceOne() },
			"read": func(t *rapid.T) {
				s.step(t.Context(), rapid.IntRange(1, 3).Draw(t, "most"))
			},
			"rest": func(t *rapid.T) {
				s.restFor(rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "since"))
			},
			"watch": func(t *rapid.T) { s.watched(t.Context(), rapid.IntRange(0, 4).Draw(t, "answered") > 0) },
			"sweep": func(t *rapid.T) { s.swept(t.Context(), shard.Draw(t, "shard")) },
			"replace": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "now") == 0 {
					s.replaced(t.Context(), shard.Draw(t, "shard"), rapid.Bool().Draw(t, "clock went back"))
				}
			},
			"": func(t *rapid.T) {
				if w.fault != nil {
					t.Fatal(w.fault)
				}
			},
		})
		s.finish(t)
	})
}

// append does a round trip; what it read along is on its way.
func (s *stage) append(shards []int, most int) {
	g := s.Glance(shards)
	for _, i := range shards {
		s.world.append(i)
	}
	if len(g.Places) > 0 && most > 0 { // else the reading fails
		s.glances = append(s.glances, &read{Glance: g, batches: s.world.read(g.Places, g.After, most)})
	}
}

// handOver gives the reader the oldest glance.
func (s *stage) handOver(anew bool) {
	if len(s.glances) == 0 {
		return
	}
	g := s.glances[0]
	s.glances = s.glances[1:]
	s.Glanced(g.Glance, anew, func() ([]eventlog.Batch, error) { return g.batches, nil })
}

// advanceOne dispatches the oldest glance that waits.
func (s *stage) advanceOne() {
	select {
	case found := <-s.came:
		s.mu.Lock()
		s.advanceLocked(found)
		s.mu.Unlock()
	default:
	}
}

// step begins a read, or ends the one that was begun, having answered it
// somewhen in between.
func (s *stage) step(ctx context.Context, most int) {
	if s.read == nil {
		s.restFor(2 * time.Hour) // over
		g := eventlog.Glance{Places: s.shards(), After: s.readFrom(func() { s.restarted = true }), Asked: time.Now()}
		s.read, s.restarted = &read{Glance: g}, false
		return
	}
	if len(s.read.batches) == 0 && !s.restarted {
		if s.read.batches = s.world.read(s.read.Places, s.read.After, most); most > 1 {
			return // on its way
		}
	}
	if !s.restarted || len(s.read.batches) > 0 { // the answer was faster
		_ = s.dispatch(ctx, s.read.After, s.read.Asked, s.read.batches)
	}
	s.read = nil
	s.restFor(time.Second)
}

func (s *stage) shards() []int { return s.reader.shards }

// restFor lets the reader rest, having read so long ago, if it isn't reading.
func (s *stage) restFor(since time.Duration) {
	if s.read != nil {
		return
	}
	s.mu.Lock()
	s.pace.read, s.pace.wait, s.pace.rate = time.Now().Add(-since), 70*time.Minute, 0
	s.mu.Unlock()
	s.left()
}

// watched is a round of the watchdog.
func (s *stage) watched(ctx context.Context, answered bool) {
	s.world.away = !answered
	_ = s.round(ctx)
	s.world.away = false
}

// swept removes entries, some of them unread; the reader has not been here for
// long, else its window would not have passed.
func (s *stage) swept(ctx context.Context, i int) {
	s.world.sweep(i, 1)
	s.mu.Lock()
	s.tracks[i].fresh = time.Now().Add(-50 * time.Minute)
	s.mu.Unlock()
}

// replaced begins a shard's log anew, and lets the watchdog see it: until then
// nobody can tell.
func (s *stage) replaced(ctx context.Context, i int, back bool) {
	s.replacements++
	head := event.ID{Ms: s.world.shards[i].state.Head.Ms + 1, Seq: 1000 * s.replacements} // no ID comes twice
	if back {
		head.Ms -= 2
	}
	s.world.found(i, head)
	_ = s.round(ctx)
}

// finish reads on until everything was dispatched.
func (s *stage) finish(t *rapid.T) {
	for range 100 {
		s.handOver(false)
		s.advanceOne()
		s.step(t.Context(), 1000)
	}
	if s.fault != nil {
		t.Fatal(s.fault)
	}
	for i := range s.world.shards {
		if shard := &s.world.shards[i]; len(shard.after(shard.pos)) > 0 {
			t.Fatalf("shard %d: dispatched up to %v of %v", i, shard.pos, shard.state.Head)
		}
	}
}
