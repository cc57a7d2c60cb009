package e2e

import (
	"fmt"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

// TestDialRing: members that dial WebSocket devices are killed, frozen, cut off,
// added, taken away and exchanged. docs/reliability.md has the full run.
func TestDialRing(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	redis := testkit.StartRedis(t)
	f := startDialFleet(t, scaleOfDialling(), "websocket", "", func() *testkit.Proxy { return testkit.StartProxy(t, redis.Addr()) })
	f.settled()
	f.publish()
	f.wantStill(f.during("nothing", nil, func() { <-time.After(f.ttl) }))
	f.wantStill(f.during("SCRIPT FLUSH", nil, func() { redis.Do("SCRIPT", "FLUSH"); <-time.After(f.ttl) }))

	victim := f.members[0]
	f.wantQuick(f.during("kill", nil, func() { f.kill(victim) }))
	o := f.during("a member is added", nil, func() { f.launch() })
	f.wantQuick(o)
	f.wantShare(o, 3)

	victim = f.members[0]
	f.wantQuick(f.during("freeze for 2 TTL", victim, func() { f.freeze(victim, 2*f.ttl) }))
	f.wantQuick(f.during("thaw", nil, func() { f.thaw(victim) }))

	victim = f.members[1]
	f.wantQuick(f.during("cut from Redis", victim, func() { f.hush(victim, true); victim.link.Stall(); <-time.After(f.ttl + f.ttl/2) }))
	f.wantQuick(f.during("Redis is back for it", nil, func() { victim.link.Resume(); f.hush(victim, false) }))
	f.wantStill(f.during("Redis away for everyone, 2 TTL", nil, func() { redis.Stop(); <-time.After(2 * f.ttl); redis.Cont(); <-time.After(f.ttl) }))

	if *dialFull {
		o = f.during("a fourth member", nil, func() { f.launch() })
		f.wantShare(o, 4)
		o = f.during("one leaves in order", nil, func() { f.terminate(f.members[0]) })
		f.wantShare(o, 4)
		f.wantQuick(o)
	}
	roll := f.during("all three are exchanged", nil, func() {
		for range 3 {
			f.launch()
			f.settled()
			f.terminate(f.members[0])
			f.settled()
		}
	})
	f.wantQuick(roll)
	if roll.most > 2 {
		t.Errorf("a device was dialled %d times in a rollout", roll.most)
	}
	f.judge()
}

// wantShare holds the devices that moved against the share of one of n members.
func (f *dialFleet) wantShare(o outcome, n int) {
	f.Helper()
	ideal := float64(f.dialScale.devices) / float64(n)
	most := 0.1 * ideal
	if !*dialFull { // with few devices their names decide how many are in a shard
		most = 0.4 * ideal
	}
	if off := float64(o.moved) - ideal; off < -most || off > most {
		f.Errorf("%s: %d devices moved, ideal are %.0f", o.fault, o.moved, ideal)
	}
}

// TestDialRingPost: the same faults with POST from the log.
func TestDialRingPost(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	redis := testkit.StartRedis(t)
	f := startDialFleet(t, scaleOfDialling(), "post", "", func() *testkit.Proxy { return testkit.StartProxy(t, redis.Addr()) })
	f.publish()
	rest := func() { <-time.After(f.ttl) }
	rest()
	f.kill(f.members[0])
	rest()
	f.launch().AwaitReady()
	rest()
	f.freeze(f.members[0], 2*f.ttl)
	f.thaw(f.members[0])
	rest()
	redis.Do("SCRIPT", "FLUSH")
	victim := f.members[1]
	f.hush(victim, true)
	victim.link.Stall()
	rest()
	rest()
	victim.link.Resume()
	f.hush(victim, false)
	rest()
	f.terminate(f.members[0])
	f.launch().AwaitReady()
	rest()
	f.judge()
}

// TestDialFailover: Redis is replaced by its replica under members that dial, by
// hand and in disorder, when it lacks the newest. What is told is what
// docs/operate/durability.md says for "evidence"; the connections stay.
func TestDialFailover(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	pair := testkit.StartPair(t)
	f := startDialFleet(t, scaleOfDialling(), "websocket", pair.URL(), nil)
	f.ledger.Justify(func(r client.Resync) error {
		if r.Reason != "log-rewound" {
			return fmt.Errorf("resync %s at %s", r.Reason, r.ID)
		}
		return nil
	})
	f.settled()
	f.publish()
	f.wantQuick(f.during("a failover by hand", nil, func() { pair.AwaitWell(); pair.Failover(); <-time.After(f.ttl) }))
	old := pair.Primary()
	f.wantQuick(f.during("the primary dies, its replica lacks a second", nil, func() {
		pair.AwaitWell()
		old.CutReplicas()
		<-time.After(time.Second)
		old.Kill9()
		pair.AwaitPrimary(pair.Other(old))
		<-time.After(f.ttl)
	}))
	f.judge()
	if f.ledger.Resyncs()["log-rewound"] == 0 {
		t.Error("nobody was told of what was lost")
	}
}
