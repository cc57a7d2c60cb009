package shard

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// ceiling fails if f allocates more than most times a call.
func ceiling(t *testing.T, what string, most float64, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n > most {
		t.Errorf("%s: %v allocations, allowed are %v", what, n, most)
	}
}

// TestWhatAnEventCosts: most events on most gateways are for somebody else.
func TestWhatAnEventCosts(t *testing.T) {
	for to, most := range map[string]float64{"elsewhere": 0, "here": 0, event.Broadcast: 1} { // what all share is encoded into one place
		g := benchGateway(1 << 20)
		for _, name := range names(benchDevices) {
			if _, err := g.Attach(&sink{}, name, nil, Start{Cursor: g.Position()}); err != nil {
				t.Fatal(err)
			}
		}
		d := newDispatcher(g, 1, targetsOf(to))
		for range 20_000 {
			d.round()
		}
		ceiling(t, "an event to "+to, most, d.round)
	}
}

func TestWhatAnAttachCosts(t *testing.T) {
	g := benchGateway(16<<20, names(benchDevices*20)...)
	g.follow(1 << 20)
	s, at := &sink{}, Start{Cursor: g.hot.floor}
	ceiling(t, "an attach with 20 missed events", 1, func() {
		m, err := g.Attach(s, "store-7", nil, at)
		if err != nil {
			t.Fatal(err)
		}
		m.Detach()
	})
}

// TestWhatALapCosts: a lap makes what it hands out and little else.
func TestWhatALapCosts(t *testing.T) {
	g := benchGateway(1, names(benchDevices*20)...)
	g.follow(1 << 20)
	sinks := make([]sink, benchDevices)
	all, members := names(benchDevices), make([]*Member, benchDevices)
	ceiling(t, "a lap of 78 devices and 1,560 events", 180, func() {
		for i, name := range all {
			members[i], _ = g.Attach(&sinks[i], name, nil, Start{Cursor: g.log.state.Founded})
		}
		if err := g.laps(); err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			m.Detach()
		}
	})
}

func TestMessageBytes(t *testing.T) {
	if n := reflect.TypeFor[Message]().Size(); n != messageBytes {
		t.Errorf("a Message has %d bytes; the hot window counts %d", n, messageBytes)
	}
	if n := reflect.TypeFor[encoded]().Size(); n != encodedBytes {
		t.Errorf("what is encoded has %d bytes; the hot window counts %d", n, encodedBytes)
	}
}

// TestHotWindowIsCountedTruly holds the count against the heap, for events that
// nobody here wants, for events whose frames are kept encoded, and for events of
// which each has a key of its own.
func TestHotWindowIsCountedTruly(t *testing.T) {
	for _, what := range []string{"alone", "shared", "keyed"} {
		shared := what == "shared"
		for _, size := range []int{30, 300, 3000, 30_000} {
			g := benchGateway(4 << 20)
			if shared {
				if _, err := g.Attach(&encoder{}, "here", nil, Start{Cursor: g.Position()}); err != nil {
					t.Fatal(err)
				}
			}
			id := g.Position()
			before := liveHeap()
			for i := range 6 << 20 / size {
				id = id.Next()
				target := fmt.Sprint("store-", i%10_000)
				if shared {
					target = event.Broadcast
				}
				e := event.Event{Target: target, Type: strings.Clone("order.push"), Payload: strings.Repeat("x", size)}
				if what == "keyed" {
					e.Key = fmt.Sprint("price:", i)
				}
				g.Dispatch([]eventlog.Entry{{ID: id, Event: e}})
			}
			used, counted := liveHeap()-before, g.hot.bytes
			if ratio := float64(used) / float64(counted); ratio < 0.85 || ratio > 1.15 {
				t.Errorf("payloads of %d bytes, %s: %d bytes are counted, %d in use (%.2f)", size, what, counted, used, ratio)
			}
			runtime.KeepAlive(g)
		}
	}
}

// encoder is a subscriber that has every frame encoded.
type encoder struct{ sink }

func (*encoder) Offer(m *Message) (taken, replaced bool) { return len(m.Frame()) > 0, false }

func liveHeap() int64 {
	var m runtime.MemStats
	for range 2 { // the first one may have been running already
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestRowsAreSmall: a session that holds one message holds its row.
func TestRowsAreSmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r row
		var rows [][]*Message
		for _, size := range rapid.SliceOf(rapid.IntRange(0, 40_000)).Draw(t, "sizes") {
			var next *Message // if the row has room
			if len(r.free) > 0 {
				next = &r.free[0]
			}
			m := r.message(&eventlog.Entry{Event: event.Event{Target: "a", Payload: strings.Repeat("x", size)}}, false)
			if m != next {
				rows = append(rows, nil)
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], m)
		}
		for _, one := range rows {
			texts := 0
			for _, m := range one {
				texts += len(m.Target) + len(m.Payload)
			}
			if len(one) > 1 && texts > 2*rowTexts {
				t.Fatalf("%d messages with %d bytes hang together", len(one), texts)
			}
		}
	})
}

// TestABatchIsDispatchedInParts: whoever attaches doesn't wait for all of it.
func TestABatchIsDispatchedInParts(t *testing.T) {
	g := benchGateway(1 << 20)
	for _, name := range names(benchDevices) {
		if _, err := g.Attach(&sink{}, name, nil, Start{Cursor: g.Position()}); err != nil {
			t.Fatal(err)
		}
	}
	batch := func(target string) []eventlog.Entry {
		entries := make([]eventlog.Entry, 1000)
		for i := range entries {
			entries[i] = eventlog.Entry{ID: event.ID{Ms: 5000, Seq: uint64(i)}, Event: event.Event{Target: target, Type: "t"}}
		}
		return entries
	}
	if n := g.dispatch(batch("elsewhere")); n != hold {
		t.Errorf("%d entries under one lock", n)
	}
	if n := g.dispatch(batch(event.Broadcast)[hold:]); n != 1 {
		t.Errorf("%d broadcasts to %d members under one lock", n, benchDevices)
	}
}

// TestStreamsOfOneDevice: whatever comes and goes, each stream that is there
// gets what is for it, and nothing is left of those that went.
func TestStreamsOfOneDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGateway(newMemlog(), 10_000)
		g.Start(g.log.state.Head)
		type stream struct {
			*listener
			device string
			groups []string
			member *Member
			want   []event.ID
		}
		var streams []*stream
		t.Repeat(map[string]func(*rapid.T){
			"attach": func(t *rapid.T) {
				s := &stream{listener: &listener{room: 1000}, device: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "device")}
				s.groups = rapid.SampledFrom([][]string{nil, {"x"}, {"x", "y"}, {"y", "y"}}).Draw(t, "groups")
				same := 0
				for _, other := range streams {
					if other.device == s.device {
						same++
					}
				}
				var err error
				s.member, err = g.Attach(s.listener, s.device, s.groups, Start{Cursor: g.Position()})
				if (err != nil) != (same == g.opts.StreamsPerDevice()) {
					t.Fatalf("stream %d of %s: %v", same+1, s.device, err)
				}
				if err == nil {
					streams = append(streams, s)
				}
			},
			"detach": func(t *rapid.T) {
				if len(streams) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(streams)-1).Draw(t, "which")
				streams[i].member.Detach()
				streams = slices.Delete(streams, i, i+1)
			},
			"event": func(t *rapid.T) {
				target := rapid.SampledFrom([]string{"a", "b", "*", "@x", "@y"}).Draw(t, "target")
				id := g.log.append(to(target))
				g.follow(1)
				for _, s := range streams {
					if target == event.Broadcast || target == s.device || target[0] == '@' && slices.Contains(s.groups, target[1:]) {
						s.want = append(s.want, id)
					}
				}
			},
			"": func(t *rapid.T) {
				for _, s := range streams {
					if !slices.Equal(s.ids(), s.want) {
						t.Fatalf("a stream of %s in %v got %v, want %v", s.device, s.groups, s.ids(), s.want)
					}
				}
				if g.members != len(streams) || len(streams) == 0 && len(g.devices)+len(g.groups) != 0 {
					t.Fatalf("%d members are counted, %d are there; %d devices, %d groups", g.members, len(streams), len(g.devices), len(g.groups))
				}
			},
		})
	})
}

// TestAFrameIsEncodedOnceForAllWhoShareIt, and not kept for one alone.
func TestAFrameIsEncodedOnceForAllWhoShareIt(t *testing.T) {
	log := newMemlog()
	g := started(log)
	at := Start{Cursor: log.state.Head}
	attach(t, g, "one", at, "north")
	attach(t, g, "two", at, "north")
	attach(t, g, "two", at)
	for target, shared := range map[string]bool{"one": false, "two": true, "*": true, "@north": true, "nobody": false} {
		log.append(to(target))
		g.follow(1)
		newest := g.hot.index[target]
		if a, b := newest.Frame(), newest.Frame(); (&a[0] == &b[0]) != shared {
			t.Errorf("an event to %q is encoded once: %v, want %v", target, !shared, shared)
		}
	}
}

// TestAnEvictedMessageHoldsNoOther: a session may hold it for long.
func TestAnEvictedMessageHoldsNoOther(t *testing.T) {
	g := benchGateway(1<<20, names(benchDevices*100)...)
	g.follow(1)
	first := g.hot.window()[0]
	g.follow(1 << 20)
	if first == g.hot.window()[0] || first.next != nil || first.prev != nil {
		t.Errorf("next %v, prev %v", first.next, first.prev)
	}
}

// TestALapReadsIntoTheWindow: far enough that the window is still there when it
// arrives, and not through all that the window holds.
func TestALapReadsIntoTheWindow(t *testing.T) {
	g := benchGateway(1<<20, names(benchDevices*100)...)
	g.follow(1 << 20)
	w := g.hot.window()
	m := &Member{state: lapping, read: g.log.state.Founded}
	after, upTo, _, ok := g.span([]*Member{m})
	if !ok || after != m.read || upTo.Less(w[len(w)/10].ID) || w[len(w)/2].ID.Less(upTo) {
		t.Errorf("from %v to %v, %v; the window is %v to %v", after, upTo, ok, w[0].ID, w[len(w)-1].ID)
	}
	m.read = g.Position() // a lap that stands in the window already ends where it stands
	if after, upTo, _, ok := g.span([]*Member{m}); !ok || after != m.read || upTo != m.read {
		t.Errorf("from %v to %v, %v", after, upTo, ok)
	}
}
