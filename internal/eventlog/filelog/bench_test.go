package filelog

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

var benchPayload = strings.Repeat("x", 256)

func benchOptions(b *testing.B) Options {
	o := testOptions(b)
	o.Shards = 64
	return o
}

// BenchmarkAppend is durable: every call waits for its sync.
func BenchmarkAppend(b *testing.B) {
	for _, publishers := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			l := open(b, benchOptions(b))
			var (
				wg sync.WaitGroup
				n  atomic.Int64
			)
			b.ReportAllocs()
			b.ResetTimer()
			for range publishers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						e := event.Event{Target: "pos-1", Type: "t", Payload: benchPayload}
						res := l.Append(b.Context(), []eventlog.Append{{Shard: int(i) % 64, Events: []event.Event{e}}})[0]
						if res.Err != nil {
							b.Error(res.Err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
	b.Run("batch=100", func(b *testing.B) {
		l := open(b, benchOptions(b))
		a := eventlog.Append{}
		for range 100 {
			a.Events = append(a.Events, event.Event{Target: "pos-1", Type: "t", Payload: benchPayload})
		}
		for b.Loop() {
			if res := l.Append(b.Context(), []eventlog.Append{a})[0]; res.Err != nil {
				b.Fatal(res.Err)
			}
		}
		b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

// filled is a log with n entries of 256 bytes, spread over 64 shards.
func filled(b *testing.B, n int) *Log {
	l := open(b, benchOptions(b))
	for i := 0; i < n; i += 1000 {
		a := eventlog.Append{Shard: i / 1000 % 64}
		for j := range 1000 {
			a.Events = append(a.Events, event.Event{Target: fmt.Sprint("pos-", j), Type: "t", Payload: benchPayload})
		}
		if res := l.Append(b.Context(), []eventlog.Append{a})[0]; res.Err != nil {
			b.Fatal(res.Err)
		}
	}
	return l
}

func BenchmarkRange(b *testing.B) {
	l := filled(b, 64_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		page, err := l.Range(b.Context(), i%64, event.ID{}, event.MaxID, 1<<30)
		if err != nil || len(page.Entries) != 1000 {
			b.Fatal(len(page.Entries), err)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkRead(b *testing.B) {
	l := filled(b, 64_000)
	after := make([]event.ID, 64)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		batches, err := l.Read(b.Context(), 0, after)
		if err != nil {
			b.Fatal(err)
		}
		for _, batch := range batches {
			n += len(batch.Entries)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkJudge(b *testing.B) {
	l := filled(b, 64_000)
	head := stateOf(b, l, 0).Head
	questions := make([]eventlog.Question, 1000)
	for i := range questions {
		questions[i] = eventlog.Question{Cursor: head, Targets: []string{fmt.Sprint("pos-", i), event.Broadcast}}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := l.Judge(b.Context(), 0, questions); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "questions/s")
}

// BenchmarkReadOne is what the tail does when one event has come.
func BenchmarkReadOne(b *testing.B) {
	l := filled(b, 64_000)
	page, err := l.Range(b.Context(), 17, event.ID{}, event.MaxID, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	after := make([]event.ID, 64)
	for i := range after {
		after[i] = stateOf(b, l, i).Head
	}
	after[17] = page.Entries[len(page.Entries)-2].ID
	b.ReportAllocs()
	for b.Loop() {
		if batches, err := l.Read(b.Context(), 0, after); err != nil || len(batches) != 1 || len(batches[0].Entries) != 1 {
			b.Fatal(batches, err)
		}
	}
}
