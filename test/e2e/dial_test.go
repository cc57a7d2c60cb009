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
	if *dialFull {
		f.wantStill(f.during("nothing", nil, func() { <-time.After(f.ttl) }))
		f.wantQuick(f.during("a lease is deleted", nil, func() { redis.Do("DEL", "pos-ev:own:7"); <-time.After(f.ttl / 2) }))
		f.wantQuick(f.during("a lease is given to another", nil, func() { f.give(redis, 8) }))
	}
	f.wantStill(f.during("SCRIPT FLUSH", nil, func() { redis.Do("SCRIPT", "FLUSH"); <-time.After(f.ttl / 2) }))

	victim := f.members[0]
	f.wantQuick(f.during("kill", nil, func() { f.kill(victim) }))
	o := f.during("a member is added", nil, func() { f.launch() })
	f.wantQuick(o)
	f.wantShare(o, 3)

	victim = f.members[0]
	f.wantQuick(f.during("freeze for 2 TTL", victim, func() { f.freeze(victim, 2*f.ttl) }))
	f.wantQuick(f.during("thaw", nil, func() { f.thaw(victim) }))

	victim = f.members[1]
	f.wantQuick(f.during("cut from Redis", victim, func() { f.hush(victim, true); victim.link.Stall(); <-time.After(f.ttl) }))
	f.wantQuick(f.during("Redis is back for it", nil, func() { victim.link.Resume(); f.hush(victim, false) }))
	victim = f.members[0]
	f.wantQuick(f.during("its leases are held up, it reads on", victim, func() { f.withoutLeases(victim, f.ttl) }))
	f.wantStill(f.during("Redis away for everyone", nil, func() { redis.Stop(); <-time.After(f.ttl + f.ttl/2); redis.Cont(); <-time.After(f.ttl / 2) }))

	if *dialFull {
		o = f.during("a fourth member", nil, func() { f.launch() })
		f.wantShare(o, 4)
		o = f.during("one leaves in order", nil, func() { f.terminate(f.members[0]) })
		f.wantShare(o, 4)
		f.wantQuick(o)
	}
	exchanges := 1
	if *dialFull {
		exchanges = len(f.members)
	}
	f.rollout(exchanges)
	f.judge()
}

// rollout exchanges some members, one after the other, as Kubernetes does.
func (f *dialFleet) rollout(members int) {
	f.Helper()
	o := f.during(fmt.Sprintf("%d of %d are exchanged", members, len(f.members)), nil, func() {
		for range members {
			f.launch()
			f.settled()
			f.terminate(f.members[0])
			f.settled()
		}
	})
	f.wantQuick(o)
	if o.most > 2 && !o.late {
		f.Errorf("a device was dialled %d times in a rollout", o.most)
	}
}

// give writes another member's name into a lease, as somebody might by hand.
func (f *dialFleet) give(redis *testkit.Redis, shard int) {
	f.Helper()
	key := fmt.Sprintf("pos-ev:own:%d", shard)
	owner, _ := redis.Do("GET", key).(string)
	for _, name := range f.names() {
		if name != owner {
			redis.Do("SET", key, name, "PX", fmt.Sprint(f.ttl.Milliseconds()))
			break
		}
	}
	<-time.After(f.ttl)
}

// wantShare holds the devices that moved against the share of one of n members. A
// member that came too late for its leases gets them back, or others.
func (f *dialFleet) wantShare(o outcome, n int) {
	f.Helper()
	ideal := float64(f.dialScale.devices) / float64(n)
	most := 0.1 * ideal
	if !*dialFull { // with few devices their names decide how many are in a shard
		most = 0.4 * ideal
	}
	if off := float64(o.moved) - ideal; off < -most || off > most && !o.late {
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
	testkit.Eventually(t, "each device's position is kept", func() bool { return keptPositions(redis) >= f.dialScale.devices })
	f.kill(f.members[0])
	f.settled()
	f.launch()
	f.settled()
	f.freeze(f.members[0], f.ttl+f.ttl/2)
	f.settled()
	f.thaw(f.members[0])
	f.settled()
	redis.Do("SCRIPT", "FLUSH")
	victim := f.members[1]
	f.hush(victim, true)
	victim.link.Stall()
	<-time.After(f.ttl)
	f.settled()
	victim.link.Resume()
	f.hush(victim, false)
	f.settled()
	if *dialFull {
		f.withoutLeases(f.members[0], f.ttl+f.ttl/2)
		f.settled()
		redis.Stop()
		<-time.After(2 * f.ttl)
		redis.Cont()
		f.settled()
	}
	f.terminate(f.members[0])
	f.settled()
	f.judge()
}

// keptPositions counts the devices whose position the log has. Before that a crash
// of their owner costs them another resync: nobody knows that they have had one.
func keptPositions(redis *testkit.Redis) (devices int) {
	for shard := range 64 {
		if n := redis.Do("HLEN", fmt.Sprintf("pos-ev:%d:pos", shard)).(int64); n > 0 {
			devices += int(n) - 1 // the generation
		}
	}
	return devices
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
	if *dialFull {
		f.wantQuick(f.during("a failover by hand", nil, func() { pair.AwaitWell(); pair.Failover(); <-time.After(f.ttl) }))
	}
	old := pair.Primary()
	f.wantQuick(f.during("the primary dies, its replica lacks a second", nil, func() {
		pair.AwaitWell()
		old.CutReplicas()
		enough := f.ledger.Acked() + f.dialScale.devices/2
		testkit.Eventually(t, "something is going to be lost", func() bool { return f.ledger.Acked() >= enough })
		old.Kill9()
		pair.AwaitPrimary(pair.Other(old))
		<-time.After(f.ttl)
	}))
	f.judge()
	if f.ledger.Resyncs()["log-rewound"] == 0 {
		t.Error("nobody was told of what was lost")
	}
}
