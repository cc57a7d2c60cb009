package e2e

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

// A redisFault is something that happens to a Redis under load.
type redisFault struct {
	strike func()
	lossy  bool // what is on its way to a replica may be lost with it
	within time.Duration
}

// onCluster are the faults of a cluster, onPair those of a pair with Sentinels.
func onCluster(t *testing.T) (url string, faults map[string]func() redisFault) {
	c := testkit.StartCluster(t, 3, 1)
	master := func() *testkit.Redis { return c.MasterOf(c.SlotOf("{18}")) } // of group 0
	return c.URL(), map[string]func() redisFault{
		"slots move": func() redisFault {
			return redisFault{within: time.Minute, strike: func() {
				for _, tag := range []string{"{18}", "{3}", "{61}"} {
					slot := c.SlotOf(tag)
					to := c.Servers[1]
					if c.MasterOf(slot) == to {
						to = c.Servers[2]
					}
					c.Migrate(slot, to)
				}
			}}
		},
		"killed": func() redisFault {
			return redisFault{within: time.Minute, lossy: true, strike: func() { master().Kill9() }}
		},
		"frozen": func() redisFault {
			return redisFault{within: time.Minute, lossy: true, strike: func() { master().Stop() }}
		},
	}
}

func onPair(t *testing.T) (url string, faults map[string]func() redisFault) {
	p := testkit.StartPair(t)
	return p.URL(), map[string]func() redisFault{
		// Sentinel promotes the replica before it tells the primary.
		"manual": func() redisFault { return redisFault{within: time.Minute, lossy: true, strike: p.Failover} },
		"killed": func() redisFault {
			return redisFault{within: time.Minute, lossy: true, strike: func() { p.Primary().Kill9() }}
		},
	}
}

// TestRedisChangesUnderLoad: shards get another server while 400 events a
// second are published and most readers of the log are idle. Deliveries go on,
// the ledger stays clean, and no gateway is restarted.
func TestRedisChangesUnderLoad(t *testing.T) {
	t.Parallel()
	for topology, start := range map[string]func(*testing.T) (string, map[string]func() redisFault){"cluster": onCluster, "sentinel": onPair} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			names := []string{"manual", "killed"}
			if topology == "cluster" {
				names = []string{"slots move", "killed", "frozen"}
			}
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					url, faults := start(t)
					underLoad(t, url, faults[name]())
				})
			}
		})
	}
}

func underLoad(t *testing.T, url string, fault redisFault) {
	var gateways []*testkit.Gateway
	for range 2 {
		gateways = append(gateways, program.StartGateway(t, args("--log", url, "--failover", "evidence")...))
	}
	var turn atomic.Int64
	ledger := testkit.NewLedger("pos", 20) // in some of the shards: the others' readers are idle
	ledger.Justify(func(r client.Resync) error {
		if !fault.lossy || r.Reason != "log-rewound" {
			return fmt.Errorf("resync %s", r.Reason)
		}
		return nil
	})
	finish := connect(t, ledger, func() string { return gateways[turn.Add(1)%2].Device }, 0)
	ledger.AwaitBegun(t)
	ctx, stop := context.WithCancel(t.Context())
	published := make(chan struct{})
	go func() {
		defer close(published)
		ledger.Publish(ctx, func() string { return gateways[0].Backend }, 400)
	}()
	further := func(n int) {
		t.Helper()
		before := ledger.Finished()
		testkit.Eventually(t, "further events are delivered", func() bool { return ledger.Finished() >= before+n })
	}
	further(400)
	stalls := watchStalls(ctx, ledger)
	fault.strike()
	further(800)
	stop()
	<-published
	worst := <-stalls
	events := ledger.Settle(t)
	t.Logf("%d events; the longest time without a delivery was %v; resyncs %v", events, worst, ledger.Resyncs())
	if worst > fault.within {
		t.Errorf("nothing was delivered for %v, allowed are %v", worst, fault.within)
	}
	finish()
}

// watchStalls measures the longest time without a delivery, until ctx ends.
func watchStalls(ctx context.Context, ledger *testkit.Ledger) <-chan time.Duration {
	out := make(chan time.Duration, 1)
	go func() {
		worst, last, since := time.Duration(0), ledger.Finished(), time.Now()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				out <- worst
				return
			case <-tick.C:
				if n := ledger.Finished(); n != last {
					worst, last, since = max(worst, time.Since(since)), n, time.Now()
				}
			}
		}
	}()
	return out
}
