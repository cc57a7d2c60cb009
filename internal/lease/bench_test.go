package lease

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/testkit"
)

// BenchmarkRenewal renews the leases of 64 shards of which this member holds
// every twentieth, and asks who is there of 20 members: what a member asks of
// one Redis every TTL/3 and every TTL/15. It reports the processor time in Redis.
func BenchmarkRenewal(b *testing.B) {
	r := testkit.StartRedis(b)
	l := connect(b, r.URL(), func(o *redislog.Options) { o.Shards = 64 })
	ask := func(who eventlog.Claimant, asks []eventlog.LeaseAsk) []eventlog.LeaseState {
		states, err := l.Leases(b.Context(), who, asks)
		if err != nil {
			b.Fatal(err)
		}
		return states
	}
	var first eventlog.Claimant
	var renewal []eventlog.LeaseAsk
	for i := range 20 {
		who := claimant(fmt.Sprintf("gateway-%d", i), "1")
		if _, err := l.Members(b.Context(), who, eventlog.PresenceStay); err != nil {
			b.Fatal(err)
		}
		asks := make([]eventlog.LeaseAsk, 64)
		for k := range asks {
			asks[k] = eventlog.LeaseAsk{Shard: k, Want: eventlog.LeaseLook}
			if k%20 == i {
				asks[k].Want = eventlog.LeaseTake
			}
		}
		for k, s := range ask(who, asks) {
			if s.Mine {
				asks[k].Want, asks[k].Held, asks[k].Floor = eventlog.LeaseKeep, s.Generation, s.Generation
			}
		}
		first, renewal = who, asks
	}
	b.Run("leases", func(b *testing.B) {
		began := spent(r)
		for b.Loop() {
			ask(first, renewal)
		}
		b.ReportMetric(float64((spent(r)-began).Microseconds())/float64(b.N), "redis-µs/op")
	})
	b.Run("members", func(b *testing.B) {
		began := spent(r)
		for b.Loop() {
			if _, err := l.Members(b.Context(), first, eventlog.PresenceLook); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64((spent(r)-began).Microseconds())/float64(b.N), "redis-µs/op")
	})
}

// spent is the processor time that the server has used.
func spent(r *testkit.Redis) time.Duration {
	sum := 0.0
	for _, kind := range []string{"user", "sys"} {
		n, _ := strconv.ParseFloat(r.Info("cpu", "used_cpu_"+kind+"_main_thread"), 64)
		sum += n
	}
	return time.Duration(sum * float64(time.Second))
}
