package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

//nolint:gochecknoglobals // a flag of the test binary
var strict = flag.Bool("topology.strict", false, "hold the times of docs/operate/topologies.md exactly: needs a quiet machine")

// busy is what a busy machine may add to them.
const busy = 30 * time.Second

// A change is something that happens to a Redis under load.
type change struct {
	name   string
	strike func()
	mend   func()        // brings back whom it cost; nil: nobody
	lossy  bool          // what is on its way to a replica may be lost with it
	within time.Duration // as docs/operate/topologies.md says
}

// TestClusterChangesUnderLoad: shards get another server while 1,000 events a
// second are published to half of the groups and the other half's readers are
// idle. Deliveries go on, the ledger stays clean, and no gateway is restarted.
func TestClusterChangesUnderLoad(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	const timeout = 2 * time.Second // cluster-node-timeout
	c := testkit.StartCluster(t, 3, 1)
	slot := c.SlotOf("{18}") // of group 0
	var old *testkit.Redis
	master := func() *testkit.Redis { old = c.MasterOf(slot); return old }
	settled := func() {
		testkit.Eventually(t, "the old master follows", func() bool { return old.Role() == "slave" })
		old.AwaitLink("up")
		c.AwaitWell()
	}
	underLoad(t, c.URL(), []change{
		{name: "slots move", within: 2 * time.Second, strike: func() {
			for _, tag := range []string{"{18}", "{3}", "{61}"} {
				slot, masters := c.SlotOf(tag), c.Servers[:3]
				c.Migrate(slot, masters[(slices.Index(masters, c.MasterOf(slot))+1)%3])
			}
		}},
		{name: "by hand", within: time.Second, strike: func() { c.Failover(c.ReplicaOf(master())) }, mend: settled},
		{name: "killed", within: timeout + 4*time.Second, lossy: true, strike: func() { master().Kill9() },
			mend: func() { old.Start(); settled() }},
		{name: "frozen", within: timeout + 4*time.Second, lossy: true, strike: func() { master().Stop() },
			mend: func() { old.Cont(); settled() }},
	})
}

// TestPairChangesUnderLoad is the same with Sentinels.
func TestPairChangesUnderLoad(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	const down = time.Second // down-after-milliseconds
	p := testkit.StartPair(t)
	var old *testkit.Redis
	primary := func() *testkit.Redis { old = p.Primary(); return old }
	follow := func() {
		p.AwaitPrimary(p.Other(old))
		old.Follow(p.Other(old))
	}
	underLoad(t, p.URL(), []change{
		// Sentinel promotes the replica before it tells the primary.
		{name: "by hand", within: time.Second, lossy: true, mend: follow, strike: func() {
			next := p.Other(primary())
			p.Sentinels[0].Do("SENTINEL", "FAILOVER", testkit.MasterSet)
			p.AwaitPrimary(next)
		}},
		{name: "killed", within: down + 3*time.Second, lossy: true, strike: func() { primary().Kill9() },
			mend: func() { old.Start(); follow() }},
		{name: "frozen", within: down + 3*time.Second, lossy: true, strike: func() { primary().Stop() },
			mend: func() { old.Cont(); follow() }},
	})
}

// ofSomeGroups are devices in shards of every other group of a cluster.
func ofSomeGroups(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("pos-", i); testkit.Shard(name, 64)%2 == 0 {
			names = append(names, name)
		}
	}
	return names
}

func underLoad(t *testing.T, url string, changes []change) {
	const rate = 1000
	var gateways []*testkit.Gateway
	for range 2 {
		gateways = append(gateways, program.StartGateway(t, args("--log", url, "--failover", "evidence")...))
	}
	var turn atomic.Int64
	var lossy atomic.Bool
	ledger := testkit.NewLedgerOf(ofSomeGroups(50))
	ledger.Justify(func(r client.Resync) error {
		if !lossy.Load() || r.Reason != "log-rewound" {
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
		ledger.Publish(ctx, func() string { return gateways[0].Backend }, rate)
	}()
	further := func(n int) {
		t.Helper()
		want := ledger.Acked() + n // each device has its turn: all of them go on
		testkit.Eventually(t, "further events are delivered", func() bool { return ledger.Finished() >= want })
	}
	moves := func() (least float64) {
		least = gateways[0].Metric("downlink_redis_moves_total")
		return min(least, gateways[1].Metric("downlink_redis_moves_total"))
	}
	further(rate / 2)
	for _, c := range changes {
		lossy.Store(c.lossy)
		before := moves()
		ledger.Stall()
		c.strike()
		testkit.Eventually(t, "the gateways have noticed", func() bool { return moves() > before })
		further(rate / 2)
		worst, allowed := ledger.Stall(), c.within
		t.Logf("%s: a device got nothing for %v; resyncs so far %v", c.name, worst.Round(time.Millisecond), ledger.Resyncs())
		if !*strict {
			allowed += busy
		}
		if worst > allowed {
			t.Errorf("%s: a device got nothing for %v, allowed are %v", c.name, worst, allowed)
		}
		if c.mend != nil {
			c.mend()
		}
	}
	stop()
	<-published
	events := ledger.Settle(t)
	finish()
	t.Logf("%d events", events)
	for _, g := range gateways {
		testkit.Eventually(t, "every gateway is ready", func() bool { status, _ := testkit.Get(t, g.Backend+"/readyz"); return status == 200 })
	}
}
