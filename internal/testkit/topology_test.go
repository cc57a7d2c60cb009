package testkit

import (
	"testing"
)

func TestPairFailsOver(t *testing.T) {
	t.Parallel()
	p := StartPair(t)
	old, next := p.Primary(), p.Replica()
	if old != p.Servers[0] {
		t.Fatal("the first server isn't the primary")
	}
	old.Do("SET", "k", "kept")
	Eventually(t, "the replica has it", func() bool { return next.Do("GET", "k") == "kept" })
	p.Failover()
	if p.Primary() != next || next.Do("GET", "k") != "kept" {
		t.Error("it wasn't promoted with its data")
	}
}

// What is written behind CutReplicas is lost, and nothing else. Sentinels are in no
// hurry but while a server is dead by the test's doing.
func TestPairLosesItsTail(t *testing.T) {
	t.Parallel()
	p := StartPair(t)
	old, next := p.Primary(), p.Replica()
	wantDownAfter := func(ms string) {
		t.Helper()
		for _, s := range p.Sentinels {
			if got := Fields(s.Do("SENTINEL", "MASTER", MasterSet))["down-after-milliseconds"]; got != ms {
				t.Errorf("a Sentinel waits for %s ms, want %s", got, ms)
			}
		}
	}
	wantDownAfter(patientMs)
	old.Do("SET", "before", "kept")
	old.AwaitReplica()
	old.CutReplicas(next)
	old.Do("SET", "after", "lost")
	old.Kill9()
	wantDownAfter("1000")
	p.AwaitPrimary(next)
	wantDownAfter(patientMs)
	if next.Do("GET", "before") != "kept" || next.Do("GET", "after") != nil {
		t.Error("the wrong writes are lost")
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	slot := c.SlotOf("k")
	from := c.MasterOf(slot)
	from.Do("SET", "k", "v")
	to := c.Servers[0]
	if to == from {
		to = c.Servers[1]
	}
	c.Migrate(slot, to)
	if got := to.Do("GET", "k"); got != "v" || c.MasterOf(slot) != to {
		t.Errorf("after the migration: %v", got)
	}
	replica := c.ReplicaOf(to)
	to.AwaitReplica()
	c.Failover(replica)
	if got := replica.Do("GET", "k"); got != "v" || c.MasterOf(slot) != replica {
		t.Errorf("after a failover: %v", got)
	}
	for _, next := range []*Redis{to, replica} { // at once, there and back
		c.AwaitFollower(c.MasterOf(slot))
		c.Failover(next)
	}
	replica.AwaitReplica()
	replica.CutReplicas(c.ReplicaOf(replica))
	replica.Do("SET", "k", "lost")
	replica.Kill9()
	c.AwaitMaster(to)
	if got := to.Do("GET", "k"); got != "v" || c.MasterOf(slot) != to {
		t.Errorf("after a crash: %v", got)
	}
}
