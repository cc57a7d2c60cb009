package redislog

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

func benchLog(b *testing.B, change func(*Options)) (*Log, *testkit.Redis) {
	b.Helper()
	r := testkit.StartRedis(b)
	opts := testOptions(b, r)
	opts.Shards = 64
	if change != nil {
		change(&opts)
	}
	return open(b, opts), r
}

var benchPayload = strings.Repeat("x", 300)

func benchEvent(n uint64) event.Event {
	return event.Event{Target: fmt.Sprint("pos-", n%5000), Type: "order.push", Payload: benchPayload}
}

func BenchmarkAppend(b *testing.B) {
	procs := runtime.GOMAXPROCS(0)
	for _, publishers := range []int{procs, 20, 200} {
		for _, size := range []int{1, 100} {
			for _, once := range []bool{false, true} {
				b.Run(fmt.Sprintf("publishers=%d/batch=%d/once=%v", publishers, size, once), func(b *testing.B) {
					l, r := benchLog(b, nil)
					b.SetParallelism(publishers / procs)
					var n atomic.Uint64
					spent, served := processorTime(b), serverTime(b, r)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							batch := make([]eventlog.Append, size)
							for i := range batch {
								k := n.Add(1)
								e := benchEvent(k)
								batch[i] = eventlog.Append{Shard: event.Shard(e.Target, 64), Events: []event.Event{e}}
								if once {
									batch[i].Once = &eventlog.Once{Scope: "s", Key: fmt.Sprint(k), Fingerprint: "f"}
								}
							}
							for _, res := range l.Append(context.Background(), batch) {
								if res.Err != nil {
									b.Error(res.Err)
								}
							}
						}
					})
					b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "events/s")
					b.ReportMetric(float64(processorTime(b)-spent)/float64(n.Load()), "cpu-ns/event")
					b.ReportMetric(float64(serverTime(b, r)-served)/float64(n.Load()), "redis-ns/event")
				})
			}
		}
	}
}

// BenchmarkJudge asks for 200 devices at once, as a reconnect storm does.
func BenchmarkJudge(b *testing.B) {
	l, _ := benchLog(b, nil)
	var questions []eventlog.Question
	for i := range 200 {
		res := l.Append(context.Background(), []eventlog.Append{{Events: []event.Event{benchEvent(uint64(i))}}})[0]
		questions = append(questions, eventlog.Question{Cursor: res.IDs[0], Targets: []string{fmt.Sprint("pos-", i), "*", "@shop"}})
	}
	for _, n := range []int{1, 200} {
		b.Run(fmt.Sprint("questions=", n), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := l.Judge(context.Background(), 0, questions[:n]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkInspect(b *testing.B) {
	l, _ := benchLog(b, nil)
	for b.Loop() {
		if _, err := l.Inspect(context.Background(), 0, make([]event.ID, 64)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSweep removes 140,000 due entries of 1 KB from one shard, and says
// how long the longest single command blocked Redis.
func BenchmarkSweep(b *testing.B) {
	const due = 140_000
	payload := strings.Repeat("x", 1000)
	for b.Loop() {
		b.StopTimer()
		l, r := benchLog(b, func(o *Options) { o.Window = 20 * time.Millisecond })
		if _, err := l.Inspect(context.Background(), 0, make([]event.ID, 64)); err != nil {
			b.Fatal(err)
		}
		commands := make([][]string, due)
		for i := range commands {
			commands[i] = []string{"XADD", stream0, "*", "dev", fmt.Sprint("pos-", i%5000), "type", "t", "payload", payload}
		}
		r.Pipe(commands...)
		r.Do("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000")
		b.StartTimer()
		calls, longest := 0, time.Duration(0)
		for removed := 0; removed < due; calls++ {
			began := time.Now()
			report, err := l.Sweep(context.Background(), 0, nil)
			if err != nil {
				b.Fatal(err)
			}
			removed += report.Removed
			longest = max(longest, time.Since(began))
		}
		b.StopTimer()
		var took []int64 // microseconds
		for _, entry := range r.Do("SLOWLOG", "GET", "-1").([]any) {
			if command := entry.([]any)[3].([]any)[0]; command == "EVALSHA" || command == "XRANGE" {
				took = append(took, entry.([]any)[2].(int64))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)-1])/1000, "longest-command-ms")
		b.ReportMetric(float64(took[len(took)/2])/1000, "median-command-ms")
		b.ReportMetric(float64(longest.Microseconds())/1000, "longest-call-ms")
		b.ReportMetric(float64(calls), "calls")
		b.StartTimer()
	}
}

// BenchmarkRead is what one event costs this side, read by the tail (64 in one
// answer, one of each shard) or by a lap (1,000 of one shard).
func BenchmarkRead(b *testing.B) {
	l, r := benchLog(b, nil)
	found, err := l.Inspect(context.Background(), 0, make([]event.ID, 64))
	if err != nil {
		b.Fatal(err)
	}
	after := make([]event.ID, 64)
	var commands [][]string
	for i := range after {
		after[i] = found[i].State.Head
		for j := range 1 + 999*(1-min(i, 1)) { // 1,000 in shard 0
			e := benchEvent(uint64(64*j + i))
			commands = append(commands, []string{"XADD", l.byShard[i].stream, "*", "dev", e.Target, "type", e.Type, "payload", e.Payload})
		}
	}
	r.Pipe(commands...)
	last, err := l.Range(context.Background(), 0, after[0], event.MaxID, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	after[0] = last.Entries[len(last.Entries)-2].ID
	b.Run("tail", func(b *testing.B) {
		b.ReportAllocs()
		spent := processorTime(b)
		for range b.N/64 + 1 {
			batches, err := l.Read(context.Background(), 0, after)
			if err != nil || len(batches) != 64 {
				b.Fatal(len(batches), err)
			}
		}
		b.ReportMetric(float64(processorTime(b)-spent)/float64(b.N), "cpu-ns/event")
	})
	for _, way := range []string{"by size", "by number"} {
		b.Run("lap/"+way, func(b *testing.B) {
			if way == "by number" {
				l.byShard[0].known.read(event.ID{}, event.MaxID, 1)
			}
			b.ReportAllocs()
			spent, served := processorTime(b), serverTime(b, r)
			for range b.N/1000 + 1 {
				page, err := l.Range(context.Background(), 0, event.ID{}, event.MaxID, 1<<20)
				if err != nil || len(page.Entries) != 1000 {
					b.Fatal(len(page.Entries), err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-spent)/float64(b.N), "cpu-ns/event")
			b.ReportMetric(float64(serverTime(b, r)-served)/float64(b.N), "redis-ns/event")
		})
	}
}

// serverTime is what the server has used, in nanoseconds.
func serverTime(b *testing.B, r *testkit.Redis) int64 {
	b.Helper()
	sum := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		s, err := strconv.ParseFloat(r.Info("cpu", field), 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += s
	}
	return int64(sum * 1e9)
}

// BenchmarkTail is what a read of all shards costs the server, by the way in
// which it is done: few shards have something, as when events are frequent and
// the tail rests in between.
func BenchmarkTail(b *testing.B) {
	l, r := benchLog(b, nil)
	found, err := l.Inspect(context.Background(), 0, make([]event.ID, 64))
	if err != nil {
		b.Fatal(err)
	}
	after := make([]event.ID, 64)
	for i := range after {
		after[i] = found[i].State.Head
	}
	var commands [][]string
	for i := range 1000 { // small ones are what it has seen
		e := benchEvent(uint64(i))
		commands = append(commands, []string{"XADD", l.byShard[63].stream, "*", "dev", e.Target, "type", e.Type, "payload", e.Payload})
	}
	r.Pipe(commands...)
	for n := 0; n < 1000; {
		batches, err := l.Read(context.Background(), 0, after)
		if err != nil {
			b.Fatal(err)
		}
		for _, batch := range batches {
			n += len(batch.Entries)
			if len(batch.Entries) > 0 {
				after[batch.Shard] = batch.Entries[len(batch.Entries)-1].ID
			}
		}
	}
	r.Pipe(commands[:10]...)
	for _, e := range []int{3, 14, 15, 26} {
		r.Do("XADD", l.byShard[e].stream, "*", "dev", "*", "type", "t", "payload", benchPayload)
	}
	for _, way := range []string{"by size", "by number"} {
		b.Run(way, func(b *testing.B) {
			t := &l.groups[0].tail
			served := serverTime(b, r)
			for b.Loop() {
				t.ended = time.Time{}
				if way == "by number" {
					t.ended = time.Now()
				}
				if batches, err := l.Read(context.Background(), 0, after); err != nil || len(batches) != 5 {
					b.Fatal(len(batches), err)
				}
			}
			b.ReportMetric(float64(serverTime(b, r)-served)/float64(b.N), "redis-ns/op")
		})
	}
}

// processorTime is what this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
