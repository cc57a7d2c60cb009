package shard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
)

func keyed(target, key string) event.Event {
	return event.Event{Target: target, Type: "t", Payload: "p", Key: key}
}

// wants holds what waits for a listener, and what it was spared.
func wants(t *testing.T, l *listener, m *Member, spared uint32, want ...event.ID) {
	t.Helper()
	if got := l.ids(); !slices.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	if n := m.Spared(); n != spared {
		t.Errorf("it was spared %d, want %d", n, spared)
	}
	if n := testutil.ToFloat64(m.shard.opts.Metrics.Conflated); n != float64(spared) {
		t.Errorf("%v are counted, want %d", n, spared)
	}
}

// taker takes each message at once: nothing is ever pending that a newer one could
// replace.
type taker struct {
	sink
	ids []event.ID
}

func (k *taker) Offer(m *Message) (taken, replaced bool) {
	k.ids = append(k.ids, m.ID)
	return true, false
}

// TestAFloodOfFewKeysIsBounded: a live member that takes nothing is never behind.
func TestAFloodOfFewKeysIsBounded(t *testing.T) {
	log := newMemlog()
	g := started(log)
	l := &listener{room: 4}
	m, err := g.Attach(l, "a", nil, Start{Cursor: log.state.Head})
	if err != nil {
		t.Fatal(err)
	}
	between := log.append(to("a"))
	var last [3]event.ID
	for i := range 1000 {
		last[i%3] = log.append(keyed("a", fmt.Sprint("k", i%3)))
	}
	g.follow(1 << 20)
	wants(t, l, m, 997, between, last[1], last[2], last[0])
	if m.state != live {
		t.Errorf("it is %v", m.state)
	}
}

// TestResumeSkipsWhatIsNeedless, from the hot window and from the log, in its
// pages of three and beyond.
func TestResumeSkipsWhatIsNeedless(t *testing.T) {
	for name, c := range map[string]struct {
		hot   int
		start func(first event.ID) Start
	}{
		"window":   {1 << 20, func(first event.ID) Start { return Start{Cursor: first} }},
		"log":      {2000, func(first event.ID) Start { return Start{Cursor: first} }},
		"earliest": {2000, func(event.ID) Start { return Start{Earliest: true} }},
	} {
		t.Run(name, func(t *testing.T) {
			log := newMemlog()
			first := log.append(to("x"))
			var last [2]event.ID
			for i := range 20 {
				last[i%2] = log.append(keyed("*", fmt.Sprint("k", i%2)))
			}
			end := log.append(to("a"))
			g := newGateway(log, c.hot)
			g.Start(log.state.Founded)
			g.follow(1 << 20)
			k := &taker{}
			m, err := g.Attach(k, "a", nil, c.start(first))
			if err != nil {
				t.Fatal(err)
			}
			if err := g.laps(); err != nil {
				t.Fatal(err)
			}
			if read := log.ranges > 0; read != (name != "window") {
				t.Fatalf("%d pages were read; the window holds %d", log.ranges, len(g.hot.window()))
			}
			if want := []event.ID{last[0], last[1], end}; !slices.Equal(k.ids, want) || m.Spared() != 18 {
				t.Errorf("it got %v and was spared %d, want %v and 18", k.ids, m.Spared(), want)
			}
		})
	}
}

// TestWhatIsPassedOverIsCountedOnce: a member that leaves the lap for want of room
// comes back after what it was spared.
func TestWhatIsPassedOverIsCountedOnce(t *testing.T) {
	log := newMemlog()
	first := log.append(to("x"))
	one := log.append(to("a"))
	log.append(keyed("a", "k"))
	newest := log.append(keyed("a", "k")) // in the first page, and has no room
	g := newGateway(log, 1)
	g.Start(log.state.Head)
	l := &listener{room: 1}
	m, err := g.Attach(l, "a", nil, Start{Cursor: first})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []event.ID{one, newest} {
		if err := g.laps(); err != nil {
			t.Fatal(err)
		}
		wants(t, l, m, 1, want)
		l.pending = nil
		m.Resume()
	}
}

// TestAPageKnowsItsOwnKeys: what a page itself makes needless isn't offered, even
// to whoever takes each event at once.
func TestAPageKnowsItsOwnKeys(t *testing.T) {
	log := newMemlog()
	first := log.append(to("x"))
	log.append(keyed("a", "k"))
	log.append(keyed("a", "k"))
	last := log.append(keyed("a", "k")) // ends the first page of three
	g := newGateway(log, 1)
	g.Start(log.state.Head)
	s := &sink{}
	m, err := g.Attach(s, "a", nil, Start{Cursor: first})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.laps(); err != nil {
		t.Fatal(err)
	}
	if position, ok := m.Position(); s.taken != 1 || m.Spared() != 2 || position != last || !ok {
		t.Errorf("%d were taken, %d spared, at %v (live: %v)", s.taken, m.Spared(), position, ok)
	}
}

// TestWhatMakesNothingNeedless: other targets, other keys, no key, and what nobody
// is told, or is told as something else.
func TestWhatMakesNothingNeedless(t *testing.T) {
	log := newMemlog()
	g := started(log)
	begin := log.state.Head
	first := log.append(keyed("a", "k"))
	want := []event.ID{first, log.append(keyed("*", "k")), log.append(keyed("@g", "k")), log.append(keyed("a", "k2")), log.append(to("a"))}
	faulty := func(fault eventlog.Fault) event.ID {
		id := log.append(keyed("a", "k"))
		log.history[len(log.history)-1].Fault = fault
		return id
	}
	want = append(want, faulty(eventlog.FaultTooLarge))
	faulty(eventlog.FaultShard)
	check := func(name string, g *gateway, l *listener, m *Member) {
		t.Run(name, func(t *testing.T) { wants(t, l, m, 0, want...) })
	}
	l, m := attach(t, g, "a", Start{Cursor: begin}, "g")
	g.follow(100)
	check("live", g, l, m)
	late := started(log)
	l, m = attach(t, late, "a", Start{Cursor: begin}, "g")
	check("resumed", late, l, m)
	behind := newGateway(log, 1)
	behind.Start(log.state.Head)
	l, m = attach(t, behind, "a", Start{Cursor: begin}, "g")
	if err := behind.laps(); err != nil {
		t.Fatal(err)
	}
	check("lap", behind, l, m)
}

// TestAMemberWithoutRoomGoesOnWhereItIsNeeded: what it couldn't take and what was
// made needless meanwhile it never sees.
func TestAMemberWithoutRoomGoesOnWhereItIsNeeded(t *testing.T) {
	log := newMemlog()
	g := started(log)
	l := &listener{room: 2}
	m, err := g.Attach(l, "a", nil, Start{Cursor: log.state.Head})
	if err != nil {
		t.Fatal(err)
	}
	one, two := log.append(to("a")), log.append(keyed("a", "k"))
	for range 50 {
		log.append(keyed("a", "l")) // the first has no room
	}
	three := log.append(keyed("a", "k")) // for which two would give its room
	g.follow(100)
	wants(t, l, m, 0, one, two)
	if look, _ := g.Look("a"); look[0].Missing != 2 || look[0].Oldest != log.history[51].ID {
		t.Errorf("%d are missing, the oldest %v", look[0].Missing, look[0].Oldest)
	}
	l.pending = nil
	m.Resume()
	wants(t, l, m, 49, log.history[51].ID, three)
}

// TestTopicsLeaveWithTheWindow, and a message that outlives them still knows its
// key.
func TestTopicsLeaveWithTheWindow(t *testing.T) {
	log := newMemlog()
	g := newGateway(log, 1)
	g.Start(log.state.Head)
	l, m := attach(t, g, "a", Start{Cursor: log.state.Head})
	for range 3 {
		log.append(keyed("a", "k"))
		g.follow(1)
		if len(g.hot.topics) != 0 || g.hot.bytes != 0 {
			t.Fatalf("%d topics and %d bytes are left", len(g.hot.topics), g.hot.bytes)
		}
	}
	wants(t, l, m, 2, log.state.Head)
}

// TestKeysCostNothingPerEvent once their topics are known.
func TestKeysCostNothingPerEvent(t *testing.T) {
	for to, most := range map[string]float64{"here": 0, event.Broadcast: 1} {
		g := benchGateway(1 << 20)
		for _, name := range names(benchDevices) {
			if _, err := g.Attach(&sink{}, name, nil, Start{Cursor: g.Position()}); err != nil {
				t.Fatal(err)
			}
		}
		d := newDispatcher(g, 1, targetsOf(to))
		d.batch[0].Event.Key = "prices"
		for range 20_000 {
			d.round()
		}
		ceiling(t, "an event with a key to "+to, most, d.round)
	}
}

// BenchmarkAttachAfterAFlood is a device that comes back to a window full of
// events for all with ten keys.
func BenchmarkAttachAfterAFlood(b *testing.B) {
	g := benchGateway(4<<20, slices.Repeat([]string{event.Broadcast}, 3000)...)
	for i := range g.log.history {
		g.log.history[i].Event.Key = fmt.Sprint("k", i%10)
	}
	g.opts.HotBytes = limits.Always(4 << 20)
	g.follow(1 << 20)
	at := Start{Cursor: g.hot.window()[0].ID}
	b.ReportAllocs()
	for b.Loop() {
		s := &sink{}
		m, err := g.Attach(s, "store-7", nil, at)
		if err != nil || s.taken != 10 {
			b.Fatal(s.taken, err)
		}
		m.Detach()
	}
}
