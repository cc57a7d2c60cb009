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
// 2,000 events a second, appended one by one. One iteration is one event.
func BenchmarkTailing(b *testing.B) {
	const rate = 2000
	for _, gateways := range []int{1, 20} {
		for _, pause := range []time.Duration{0, 5 * time.Millisecond} {
			b.Run(fmt.Sprintf("gateways=%d/pause=%v", gateways, pause), func(b *testing.B) {
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
				b.ReportMetric((cpu()-cpuBefore)/b.Elapsed().Seconds()*1000, "redis-ms/s")
				b.ReportMetric((reads()-readsBefore)/float64(b.N*gateways), "reads/event")
				cancel()
				running.Wait()
				slices.Sort(all.took)
				for name, part := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99} {
					at := int(math.Ceil(part*float64(len(all.took)))) - 1
					b.ReportMetric(float64(all.took[at].Microseconds())/1000, name)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
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
