package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
)

const benchDevices = 78 // of 5,000, in one of 64 shards

var benchPayload = strings.Repeat("x", 300)

// sink takes everything and keeps nothing.
type sink struct{ taken int }

func (s *sink) Offer(*Message) (taken, replaced bool) {
	s.taken++
	return true, false
}

func (s *sink) Resync(event.Reason, event.ID, time.Duration) {}

// whole is a memlog whose pages are as large as a real log's.
type whole struct{ *memlog }

func (w whole) Range(_ context.Context, _ int, after, upTo event.ID, _ int) (eventlog.Page, error) {
	return eventlog.Page{Entries: w.after(after), Through: upTo}, nil
}

// Judge finds everything in order: the log's own work isn't measured here.
func (w whole) Judge(_ context.Context, _ int, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	return make([]event.Reason, len(questions)), w.state, nil
}

func benchGateway(hotBytes int, entries ...string) *gateway {
	log := newMemlog()
	for _, target := range entries {
		log.append(event.Event{Target: target, Type: "order.push", Payload: benchPayload})
	}
	set := NewSet(whole{log}, Options{
		Shards: 1, HotBytes: limits.Always(hotBytes), PageBytes: 1 << 20, MaxLaps: 1,
		Pacer: NewPacer(time.Millisecond), Metrics: NewMetrics(nil),
	})
	g := &gateway{Shard: set.shards[0], log: log}
	g.Start(log.state.Founded)
	return g
}

// names are the targets of n entries, in turns for the devices of a shard.
func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("store-", i%benchDevices)
	}
	return out
}

// dispatcher hands a shard entries of rising IDs in batches.
type dispatcher struct {
	g     *gateway
	batch []eventlog.Entry
	next  event.ID
}

func newDispatcher(g *gateway, batch int, target func(i int) string) *dispatcher {
	d := &dispatcher{g: g, next: g.Position()}
	for i := range batch {
		d.batch = append(d.batch, eventlog.Entry{Event: event.Event{Target: target(i), Type: "order.push", Payload: benchPayload}})
	}
	return d
}

func (d *dispatcher) round() {
	for i := range d.batch {
		d.next = d.next.Next()
		d.batch[i].ID = d.next
	}
	d.g.Dispatch(d.batch)
}

// BenchmarkDispatch is one event, for nobody here, for one device, or for all
// of a shard.
func BenchmarkDispatch(b *testing.B) {
	for _, batch := range []int{1, 64} {
		for _, to := range []string{"elsewhere", "here", event.Broadcast} {
			b.Run(fmt.Sprintf("to=%s/batch=%d", to, batch), func(b *testing.B) {
				g := benchGateway(1 << 20)
				for _, name := range names(benchDevices) {
					if _, err := g.Attach(&sink{}, name, nil, Start{Cursor: g.Position()}); err != nil {
						b.Fatal(err)
					}
				}
				d := newDispatcher(g, batch, targetsOf(to))
				for range 20_000/batch + 1 {
					d.round() // until the window is full
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N/batch + 1 {
					d.round()
				}
			})
		}
	}
}

func targetsOf(to string) func(i int) string {
	elsewhere, here := make([]string, 64), names(64)
	for i := range elsewhere {
		elsewhere[i] = fmt.Sprint("away-", i)
	}
	return func(i int) string {
		switch to {
		case "elsewhere":
			return elsewhere[i%64]
		case "here":
			return here[i%64]
		}
		return to
	}
}

// BenchmarkAttach is a device that comes back and has missed 20 events, all of
// them in the hot window.
func BenchmarkAttach(b *testing.B) {
	g := benchGateway(16<<20, names(benchDevices*20)...)
	g.follow(1 << 20)
	at := Start{Cursor: g.hot.floor}
	b.ReportAllocs()
	for b.Loop() {
		s := &sink{}
		m, err := g.Attach(s, "store-7", nil, at)
		if err != nil || s.taken != 20 {
			b.Fatal(s.taken, err)
		}
		m.Detach()
	}
}

// BenchmarkAttachOneBehind is a device that has missed one event, the last of a
// window full of events that were for all.
func BenchmarkAttachOneBehind(b *testing.B) {
	g := benchGateway(4<<20, slices.Repeat([]string{event.Broadcast}, 5000)...)
	g.follow(1 << 20)
	w := g.hot.window()
	at := Start{Cursor: w[len(w)-2].ID}
	b.ReportAllocs()
	for b.Loop() {
		s := &sink{}
		m, err := g.Attach(s, "store-7", nil, at)
		if err != nil || s.taken != 1 {
			b.Fatal(s.taken, err)
		}
		m.Detach()
	}
}

// BenchmarkLap serves the devices of one shard, 20 missed events each, from the
// log: a 64th of a storm of 5,000.
func BenchmarkLap(b *testing.B) {
	g := benchGateway(1, names(benchDevices*20)...)
	g.follow(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		taken := 0
		members := make([]*Member, 0, benchDevices)
		sinks := make([]sink, benchDevices)
		for i, name := range names(benchDevices) {
			m, err := g.Attach(&sinks[i], name, nil, Start{Cursor: g.log.state.Founded})
			if err != nil {
				b.Fatal(err)
			}
			members = append(members, m)
		}
		if err := g.laps(); err != nil {
			b.Fatal(err)
		}
		for i, m := range members {
			taken += sinks[i].taken
			m.Detach()
		}
		if taken != 20*benchDevices {
			b.Fatal(taken)
		}
	}
}
