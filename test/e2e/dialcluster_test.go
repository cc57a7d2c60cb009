package e2e

import (
	"testing"
	"time"

	"downlink/internal/testkit"
)

// TestDialCluster: leases lie in the slots of their shards. A slot with leases
// and streams moves to another master, masters are replaced by hand, and a member
// leaves and is killed, while it all goes on.
func TestDialCluster(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	cluster := testkit.StartCluster(t, 2, 1)
	f := startDialFleet(t, scaleOfDialling(), "websocket", cluster.URL(), nil)
	f.settled()
	f.publish()
	first := cluster.Servers[0]
	leases := first.Do("KEYS", "pos-ev:*:own:*").([]any)
	if len(leases) < 16 {
		t.Fatalf("one of two masters has the leases %v", leases)
	}
	slot := cluster.SlotOf(leases[0].(string))
	f.wantStill(f.during("a slot with leases moves", nil, func() {
		cluster.Migrate(slot, cluster.Servers[1])
		<-time.After(f.ttl)
	}))
	f.wantStill(f.during("both masters are replaced by hand", nil, func() {
		for _, master := range cluster.Servers[:2] {
			cluster.Failover(cluster.ReplicaOf(master))
		}
		<-time.After(f.ttl)
	}))
	f.wantQuick(f.during("kill", nil, func() { f.kill(f.members[0]) }))
	f.wantQuick(f.during("a member is added", nil, func() { f.launch() }))
	f.wantQuick(f.during("one leaves in order", nil, func() { f.terminate(f.members[0]) }))
	f.judge()
}
