package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a gateway whose shard has dispatched what the log holds.
func started(log *memlog) *gateway {
	g := newGateway(log, 1<<20)
	g.Start(log.state.Founded)
	g.follow(1 << 20)
	return g
}

func to(target string) event.Event { return event.Event{Target: target, Type: "t", Payload: "p"} }

func attach(t *testing.T, g *gateway, device string, start Start, groups ...string) (*listener, *Member) {
	t.Helper()
	l := &listener{room: 1 << 20}
	m, err := g.Attach(l, device, groups, start)
	if err != nil {
		t.Fatal(err)
	}
	return l, m
}

func TestDispatchReachesDeviceBroadcastAndGroup(t *testing.T) {
	log := newMemlog()
	g := started(log)
	at := Start{Cursor: log.state.Head}
	a, _ := attach(t, g, "a", at, "north", "north") // naming a group twice delivers once
	b, _ := attach(t, g, "b", at)
	ids := []event.ID{log.append(to("a")), log.append(to("*")), log.append(to("@north")), log.append(to("@south")), log.append(to("nobody"))}
	g.follow(10)
	if diff := cmp.Diff(ids[:3], a.ids()); diff != "" {
		t.Errorf("a got %s", diff)
	}
	if diff := cmp.Diff(ids[1:2], b.ids()); diff != "" {
		t.Errorf("b got %s", diff)
	}
}

func TestResumeInsideTheHotWindowAsksTheLogNothing(t *testing.T) {
	log := newMemlog()
	first := log.append(to("a"))
	rest := []event.ID{log.append(to("a")), log.append(to("*")), log.append(to("@g")), log.append(to("a"))}
	g := started(log)
	log.fail.Store(true)
	a, m := attach(t, g, "a", Start{Cursor: first}, "g")
	if diff := cmp.Diff(rest, a.ids()); diff != "" {
		t.Error(diff)
	}
	if _, ok := m.Position(); !ok {
		t.Error("not live")
	}
}

func TestManyOldCursorsShareALap(t *testing.T) {
	log := newMemlog()
	first := log.append(to("*"))
	for i := range 30 {
		log.append(to(fmt.Sprint("d", i)))
	}
	g := newGateway(log, 1<<20)
	g.Start(log.state.Head)
	var listeners []*listener
	for i := range 500 {
		l, _ := attach(t, g, fmt.Sprint("d", i%30, "-", i/30), Start{Cursor: first})
		listeners = append(listeners, l)
	}
	same, _ := attach(t, g, "d7", Start{Cursor: first})
	if err := g.laps(); err != nil {
		t.Fatal(err)
	}
	if pages := 10; log.ranges != pages {
		t.Errorf("%d pages were read, the log has %d after the cursor", log.ranges, pages)
	}
	if len(same.ids()) != 1 || len(listeners[0].ids()) != 0 {
		t.Errorf("d7 got %v, another %v", same.ids(), listeners[0].ids())
	}
}

func TestASlowMemberLeavesTheLap(t *testing.T) {
	log := newMemlog()
	first := log.append(to("x"))
	for range 20 {
		log.append(to("*"))
	}
	g := newGateway(log, 1<<20)
	g.Start(log.state.Head)
	slow := &listener{room: 2}
	slowMember, err := g.Attach(slow, "slow", nil, Start{Cursor: first})
	if err != nil {
		t.Fatal(err)
	}
	fast, fastMember := attach(t, g, "fast", Start{Cursor: first})
	if err := g.laps(); err != nil {
		t.Fatal(err)
	}
	if _, ok := fastMember.Position(); !ok || len(fast.pending) != 20 {
		t.Errorf("the fast one has %d events and waits for the slow one", len(fast.pending))
	}
	if len(slow.pending) != 2 || slowMember.state != stalled {
		t.Errorf("the slow one holds %d events in state %d", len(slow.pending), slowMember.state)
	}
	got := 0
	for slowMember.state != live {
		got += len(slow.pending)
		slow.pending = nil
		slowMember.Resume()
		if err := g.laps(); err != nil {
			t.Fatal(err)
		}
	}
	if got += len(slow.pending); got != 20 {
		t.Errorf("the slow one got %d events of 20", got)
	}
}

func TestCursorAheadOfThisGateway(t *testing.T) {
	log := newMemlog()
	g := started(log)
	var ids []event.ID
	for range 5 {
		ids = append(ids, log.append(to("a")))
	}
	g.follow(2) // another gateway has read all five
	a, _ := attach(t, g, "a", Start{Cursor: ids[3]})
	if err := g.laps(); err != nil {
		t.Fatal(err)
	}
	g.follow(10)
	if diff := cmp.Diff(ids[4:], a.ids()); diff != "" || len(a.resyncs) != 0 {
		t.Errorf("got %s and resyncs %v", diff, a.resyncs)
	}
	beyond, _ := attach(t, g, "a", Start{Cursor: event.ID{Ms: 1 << 50}})
	if err := g.laps(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]resynced{{event.LogRewound, ids[4]}}, beyond.resyncs, cmp.AllowUnexported(resynced{})); diff != "" {
		t.Error(diff)
	}
}

func TestReasonsAndEarliest(t *testing.T) {
	log := newMemlog()
	for range 4 {
		log.append(to("a"))
	}
	log.append(to("b"))
	log.sweep(2)
	g := newGateway(log, 1<<20)
	g.Start(log.state.Head)
	head := log.state.Head
	for _, c := range []struct {
		name string
		at   Start
		dev  string
		want []resynced
		got  int
	}{
		{"no cursor", Start{Reason: event.NoCursor}, "a", []resynced{{event.NoCursor, head}}, 0},
		{"invalid", Start{Reason: event.InvalidCursor}, "a", []resynced{{event.InvalidCursor, head}}, 0},
		{"missed one", Start{Cursor: log.state.Founded}, "a", []resynced{{event.WindowExpired, head}}, 0},
		{"missed nothing", Start{Cursor: log.state.Founded}, "b", nil, 1},
		{"last swept", Start{Cursor: log.state.Swept}, "a", nil, 2},
		{"unknown ID", Start{Cursor: event.ID{Ms: 999}}, "b", []resynced{{event.WindowExpired, head}}, 0},
		{"earliest", Start{Earliest: true}, "a", nil, 2},
	} {
		l, m := attach(t, g, c.dev, c.at)
		if err := g.laps(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, l.resyncs, cmp.AllowUnexported(resynced{})); diff != "" || len(l.pending) != c.got {
			t.Errorf("%s: %d events, want %d; resyncs %s", c.name, len(l.pending), c.got, diff)
		}
		m.Detach()
	}
}

// TestEarliestInALogOlderThanItsRecord: entries were there before any gateway
// was. Nothing proves what came before them, and nothing need be proved.
func TestEarliestInALogOlderThanItsRecord(t *testing.T) {
	log := newMemlog()
	var want []event.ID
	for range 7 { // three pages
		want = append(want, log.append(to("a")))
	}
	log.state.Swept, log.state.Since = event.ID{}, log.state.Head
	g := newGateway(log, 1<<20)
	g.Start(log.state.Head)
	slow := &listener{room: 2}
	m, err := g.Attach(slow, "a", nil, Start{Earliest: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []event.ID
	for range 10 {
		if err := g.laps(); err != nil {
			t.Fatal(err)
		}
		got = append(got, slow.ids()...)
		slow.pending = nil
		m.Resume()
	}
	if diff := cmp.Diff(want, got); diff != "" || len(slow.resyncs) != 0 {
		t.Errorf("%s, resyncs %v", diff, slow.resyncs)
	}
	if m.state != live {
		t.Errorf("state %d", m.state)
	}
}

func TestTooManyStreamsRefusesTheNewest(t *testing.T) {
	g := started(newMemlog())
	var members []*Member
	for range 4 {
		_, m := attach(t, g, "a", Start{Reason: event.NoCursor})
		members = append(members, m)
	}
	if _, err := g.Attach(&listener{}, "a", nil, Start{}); !errors.Is(err, ErrTooManyStreams) {
		t.Errorf("got %v", err)
	}
	attach(t, g, "b", Start{Reason: event.NoCursor})
	members[1].Detach()
	members[1].Detach()
	attach(t, g, "a", Start{Reason: event.NoCursor})
}

func TestDetachLeavesNothing(t *testing.T) {
	log := newMemlog()
	first := log.append(to("a"))
	g := newGateway(log, 1<<20)
	g.Start(log.append(to("a")))
	_, queued := attach(t, g, "a", Start{Cursor: first}, "g")
	_, liveOne := attach(t, g, "a", Start{Reason: event.NoCursor}, "g")
	queued.Detach()
	liveOne.Detach()
	if len(g.devices)+len(g.groups)+len(g.waiting) != 0 {
		t.Errorf("left behind: %v %v %v", g.devices, g.groups, g.waiting)
	}
}

func TestResetTellsEverybody(t *testing.T) {
	log := newMemlog()
	first := log.append(to("a"))
	log.append(to("a"))
	g := newGateway(log, 1<<20)
	g.Start(log.state.Head)
	waiting, _ := attach(t, g, "a", Start{Cursor: first})
	liveOne, m := attach(t, g, "b", Start{Reason: event.NoCursor})
	at := event.ID{Ms: 5}
	g.Reset(at, event.LogRewound)
	for name, l := range map[string]*listener{"waiting": waiting, "live": liveOne} {
		if last := l.resyncs[len(l.resyncs)-1]; last != (resynced{event.LogRewound, at}) {
			t.Errorf("%s: %v", name, last)
		}
	}
	if pos, ok := m.Position(); pos != at || !ok {
		t.Errorf("position %v, %v", pos, ok)
	}
	if err := g.laps(); err != nil || len(waiting.pending) != 0 {
		t.Errorf("a lap still served the old cursor: %v, %v", waiting.ids(), err)
	}
}

func TestFaultyEntriesMoveThePositionOnly(t *testing.T) {
	log := newMemlog()
	g := started(log)
	a, m := attach(t, g, "a", Start{Cursor: log.state.Head})
	bad := eventlog.Entry{ID: event.ID{Ms: 2000}, Fault: eventlog.FaultNoField}
	large := eventlog.Entry{ID: event.ID{Ms: 2001}, Event: event.Event{Target: "a", Type: "t"}, Fault: eventlog.FaultTooLarge}
	g.Dispatch([]eventlog.Entry{bad, large})
	if pos, _ := m.Position(); pos != large.ID {
		t.Errorf("position %v", pos)
	}
	if diff := cmp.Diff([]event.ID{large.ID}, a.ids()); diff != "" {
		t.Error(diff) // the session makes a resync of it
	}
	if n := testutil.ToFloat64(g.opts.Metrics.resyncs.WithLabelValues(string(event.EventTooLarge))); n != 1 {
		t.Errorf("%v resyncs are counted", n)
	}
	if !g.hot.holds(bad.ID) {
		t.Error("a cursor at a faulty entry isn't known")
	}
}

func TestHotWindowIsBounded(t *testing.T) {
	log := newMemlog()
	g := newGateway(log, 10_000)
	g.Start(log.state.Founded)
	for i := range 1000 {
		log.append(to(fmt.Sprint("d", i%7)))
	}
	g.follow(1000)
	w := g.hot.window()
	if g.hot.bytes > 10_000 || len(w) < 10 {
		t.Errorf("%d bytes in %d entries", g.hot.bytes, len(w))
	}
	indexed := 0
	for _, m := range g.hot.index {
		for ; m != nil; m = m.prev {
			indexed++
		}
	}
	if indexed != len(w) || cap(g.hot.entries) > 500 {
		t.Errorf("%d indexed of %d in a slice of %d", indexed, len(w), cap(g.hot.entries))
	}
	huge := log.append(event.Event{Target: "a", Payload: string(make([]byte, 50_000))})
	g.follow(1)
	if w := g.hot.window(); len(w) != 0 || g.hot.floor != huge || g.hot.bytes != 0 || len(g.hot.index) != 0 {
		t.Errorf("an event larger than the window: %d entries, %d bytes, floor %v", len(w), g.hot.bytes, g.hot.floor)
	}
}

func TestNotesFromTheHotWindow(t *testing.T) {
	log := newMemlog()
	set := NewSet(log, Options{Shards: 1, HotBytes: limits.Always(1 << 20), MaxLaps: 1, Pacer: NewPacer(0), Metrics: NewMetrics(nil)})
	floor := log.state.Head
	set.Start(0, floor)
	a1, star, a2 := log.append(to("a")), log.append(to("*")), log.append(to("a"))
	set.Dispatch(0, log.after(floor))
	notes, n, ok := set.Notes(0, floor, star)
	if diff := cmp.Diff(map[string]event.ID{"a": a1, "*": star}, notes); diff != "" || n != 2 || !ok {
		t.Error(diff, n, ok)
	}
	if _, _, ok := set.Notes(0, event.ID{}, a2); ok {
		t.Error("claims to know what came before its floor")
	}
	if _, _, ok := set.Notes(0, floor, a2.Next()); ok {
		t.Error("claims to know what it hasn't read")
	}
}

func TestRunWaitsOutALogThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemlog()
		first := log.append(to("a"))
		second := log.append(to("a"))
		g := newGateway(log, 1<<20)
		g.Start(log.state.Head)
		log.fail.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { g.Run(ctx); close(done) }()
		a, _ := attach(t, g, "a", Start{Cursor: first})
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		g.mu.Lock()
		if len(a.pending)+len(a.resyncs) != 0 {
			t.Errorf("served without a log: %v, %v", a.ids(), a.resyncs)
		}
		g.mu.Unlock()
		log.fail.Store(false)
		time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		cancel()
		<-done
		if diff := cmp.Diff([]event.ID{second}, a.ids()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPacerSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(2 * time.Millisecond)
		for i := range 5 {
			if d := p.Delay(); d != time.Duration(i)*2*time.Millisecond {
				t.Errorf("call %d: %v", i, d)
			}
		}
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		if d := p.Delay(); d != 0 {
			t.Errorf("after a pause: %v", d)
		}
	})
}
