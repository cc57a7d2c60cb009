package tail

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/limits"
	"downlink/internal/shard"
	"downlink/internal/testkit"
)

// arrivals notes how long after it was sent each event is dispatched.
type arrivals struct {
	zero time.Time
	mu   sync.Mutex
	took []time.Duration
}

func (a *arrivals) Start(int, event.ID)               {}
func (a *arrivals) Reset(int, event.ID, event.Reason) {}
func (a *arrivals) Overtaken(context.Context, int) (event.ID, error) {
	return event.ID{}, eventlog.ErrUnavailable
}

func (a *arrivals) Dispatch(_ int, entries []eventlog.Entry) {
	now := time.Since(a.zero)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range entries {
		sent, _, _ := strings.Cut(entries[i].Event.Payload, " ")
		if ns, err := strconv.ParseInt(sent, 10, 64); err == nil {
			a.took = append(a.took, now-time.Duration(ns))
		}
	}
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.took)
}

func benchLog(b *testing.B, redis *testkit.Redis) *redislog.Log {
	b.Helper()
	l, err := redislog.Open(context.Background(), redislog.Options{
		URL: redis.URL(), Shards: 64, Window: time.Hour, BlockTime: time.Second,
		CallTimeout: 15 * time.Second, Logger: discard(), Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// redisStat is a number from INFO.
func redisStat(b *testing.B, redis *testkit.Redis, section, name string) float64 {
	b.Helper()
	for line := range strings.Lines(fmt.Sprint(redis.Do("INFO", section))) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
			value, _, _ = strings.Cut(value, ",")
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			return f
		}
	}
	return 0
}

// BenchmarkTailing is what it costs one Redis server that gateways follow
// events that are appended one by one. At 100 a second each event is a read of
// its own for each gateway, which is what 2,000 a second would cost without a
// pause on a machine that could do it. One iteration is one event.
func BenchmarkTailing(b *testing.B) {
	for _, c := range []struct {
		gateways, rate int
		pause          time.Duration
	}{
		{1, 2000, 0}, {1, 2000, 5 * time.Millisecond},
		{20, 100, 0}, {20, 2000, 0}, {20, 2000, 5 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("gateways=%d/rate=%d/pause=%v", c.gateways, c.rate, c.pause), func(b *testing.B) {
			follow(b, c.gateways, c.rate, c.pause)
		})
	}
}

func follow(b *testing.B, gateways, rate int, pause time.Duration) {
	redis := testkit.StartRedis(b)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	all := &arrivals{zero: time.Now()}
	for range gateways {
		t := New(benchLog(b, redis), all, Options{
			Window: time.Hour, Watch: time.Hour, Pause: pause, Metrics: NewMetrics(nil), Logger: discard(),
		})
		running.Go(func() { _ = t.Run(ctx) })
		testkit.Eventually(b, "the tail has begun", t.Ready)
	}
	log := benchLog(b, redis)
	cpu := func() float64 {
		return redisStat(b, redis, "cpu", "used_cpu_user:") + redisStat(b, redis, "cpu", "used_cpu_sys:")
	}
	reads := func() float64 { return redisStat(b, redis, "commandstats", "cmdstat_xread:calls=") }
	cpuBefore, readsBefore := cpu(), reads()
	b.ResetTimer()
	publish(b, log, all.zero, rate)
	testkit.Eventually(b, "every event has arrived", func() bool { return all.count() >= b.N*gateways })
	b.StopTimer()
	b.ReportMetric((cpu()-cpuBefore)/float64(b.N)*1e6, "redis-us/event")
	b.ReportMetric((reads()-readsBefore)/float64(b.N*gateways), "reads/event")
	cancel()
	running.Wait()
	slices.Sort(all.took)
	for name, part := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99} {
		at := int(math.Ceil(part*float64(len(all.took)))) - 1
		b.ReportMetric(float64(all.took[at].Microseconds())/1000, name)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// publish appends b.N events one by one, at a rate.
func publish(b *testing.B, log *redislog.Log, zero time.Time, rate int) {
	filler := strings.Repeat("x", 280)
	var sending sync.WaitGroup
	began := time.Now()
	for sent := 0; sent < b.N; {
		for due := int(time.Since(began).Seconds()*float64(rate)) + 1; sent < min(due, b.N); sent++ {
			device := fmt.Sprint("store-", sent%5000)
			sending.Go(func() {
				e := event.Event{Target: device, Type: "order.push", Payload: fmt.Sprint(time.Since(zero).Nanoseconds(), " ", filler)}
				batch := []eventlog.Append{{Shard: event.Shard(device, 64), Events: []event.Event{e}}}
				if res := log.Append(context.Background(), batch)[0]; res.Err != nil {
					b.Error(res.Err)
				}
			})
		}
		<-time.After(time.Second / time.Duration(2*rate))
	}
	sending.Wait()
}

// elsewhere is a reader of 64 shards in front of shards without members, and
// what a read of it brings: events in some of them.
func elsewhere(events int) (read func()) {
	set := shard.NewSet(nil, shard.Options{Shards: 64, HotBytes: limits.Always(4 << 20), Metrics: shard.NewMetrics(nil)})
	all := make([]int, 64)
	for i := range all {
		all[i] = i
		set.Start(i, event.ID{Ms: 1000})
	}
	r := newReader(nil, set, Options{Window: time.Hour, Metrics: NewMetrics(nil), Logger: discard()}, 0, len(all), all)
	for i := range r.tracks {
		r.tracks[i] = track{pos: event.ID{Ms: 1000}, fresh: time.Now()}
	}
	batches := make([]eventlog.Batch, 0, events)
	for i := 0; len(batches) < events; i++ {
		device := fmt.Sprint("store-", i)
		if s := event.Shard(device, 64); !slices.ContainsFunc(batches, func(b eventlog.Batch) bool { return b.Shard == s }) {
			batches = append(batches, eventlog.Batch{Shard: s, Drained: true, Entries: []eventlog.Entry{{
				ID: event.ID{Ms: 1000}, Event: event.Event{Target: device, Type: "order.push", Payload: strings.Repeat("x", 300)},
			}}})
		}
	}
	after := make([]event.ID, len(all))
	ctx := context.Background()
	return func() {
		for i := range after {
			after[i] = r.tracks[i].pos
		}
		for i := range batches {
			batches[i].Entries[0].ID = batches[i].Entries[0].ID.Next()
		}
		if err := r.dispatch(ctx, after, time.Now(), batches); err != nil {
			panic(err)
		}
	}
}

// BenchmarkElsewhere is an event for a device that isn't here, from the answer
// of the log to its place in the hot window; 8 come with one read.
func BenchmarkElsewhere(b *testing.B) {
	read := elsewhere(8)
	for range 2000 {
		read() // until the window is full
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N/8 + 1 {
		read()
	}
}

// TestWhatAnEventElsewhereCosts: nothing, but for the rows that events share.
func TestWhatAnEventElsewhereCosts(t *testing.T) {
	read := elsewhere(8)
	for range 2000 {
		read()
	}
	if n := testing.AllocsPerRun(500, read); n > 1 {
		t.Errorf("%v allocations for 8 events, allowed is one", n)
	}
}
