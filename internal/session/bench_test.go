package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/shard"
)

// asleep is a sink that needs no waking.
type asleep struct{}

func (*asleep) Wake() {}

func (*asleep) Peer() (address, protocol string) { return "", "" }

func benchShards() *shard.Set {
	set := shard.NewSet(silent{}, shard.Options{
		Shards: 1, HotBytes: limits.Always(1 << 20), MaxLaps: 1, Pacer: shard.NewPacer(0), Metrics: shard.NewMetrics(nil),
	})
	set.Start(0, event.ID{Ms: 1000})
	return set
}

func attached(tb testing.TB, set *shard.Set, device string) *Session {
	tb.Helper()
	s := New(device, &asleep{}, &roomy)
	if err := s.Attach(set.Of(device), nil, shard.Start{Cursor: event.ID{Ms: 1000}}); err != nil {
		tb.Fatal(err)
	}
	return s
}

// BenchmarkDeliver is one event from the dispatch to the frame in the hands of
// the driver, for one device or for 156 sessions that share it.
func BenchmarkDeliver(b *testing.B) {
	for _, sessions := range []int{1, 156} {
		b.Run(fmt.Sprint("sessions=", sessions), func(b *testing.B) {
			set := benchShards()
			var all []*Session
			for i := range sessions {
				all = append(all, attached(b, set, fmt.Sprint("store-", i)))
			}
			entries := []eventlog.Entry{{ID: event.ID{Ms: 1000}, Event: event.Event{
				Target: event.Broadcast, Type: "order.push", Payload: strings.Repeat("x", 300),
			}}}
			var frames [][]byte
			round := func() {
				entries[0].ID = entries[0].ID.Next()
				set.Dispatch(0, entries)
				for _, s := range all {
					if frames = s.Next(frames[:0], 1<<16); len(frames) != 1 {
						b.Fatal(len(frames))
					}
				}
			}
			for range 4000 {
				round() // until the window is full
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N/sessions + 1 {
				round()
			}
		})
	}
}

// BenchmarkIdle says what an attached session costs while nothing happens, in
// bytes of live heap: the session, its member, and their places in the shard.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(idleBytes(b), "B/session")
	}
}

func idleBytes(tb testing.TB) float64 {
	const sessions = 20_000
	devices := make([]string, sessions)
	for i := range devices {
		devices[i] = fmt.Sprint("store-", i)
	}
	set, sink := benchShards(), &asleep{}
	all := make([]*Session, sessions)
	before := liveHeap()
	for i, device := range devices {
		s := New(device, sink, &roomy)
		if err := s.Attach(set.Of(device), nil, shard.Start{Cursor: event.ID{Ms: 1000}}); err != nil {
			tb.Fatal(err)
		}
		all[i] = s
	}
	grown := liveHeap() - before
	runtime.KeepAlive(all)
	runtime.KeepAlive(devices)
	runtime.KeepAlive(set)
	return float64(grown) / sessions
}

func liveHeap() int64 {
	var m runtime.MemStats
	for range 2 { // the first one may have been running already
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
