package e2e

import (
	"fmt"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// TestDialTampering: somebody deletes the leases of a member, gives them to
// another one by hand, and then loses all that Redis holds of leases and members.
// Leases that are gone are taken again over the same connections; those that are
// somebody else's are let go of.
func TestDialTampering(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	redis := testkit.StartRedis(t)
	f := startDialFleet(t, scaleOfDialling(), "websocket", redis.URL(), nil)
	f.settled()
	f.publish()
	member := f.members[0].name
	f.wantStill(f.during("leases are deleted", nil, func() {
		var deleted time.Time
		testkit.Eventually(t, "they are taken again", func() bool {
			if f.members[0].Metric(`downlink_lease_lost_total{reason="gone"}`) > 10 {
				return len(leasesOf(redis, member)) > 10
			}
			if time.Since(deleted) > 3*f.ttl { // a member that comes too late finds them with another
				for _, shard := range leasesOf(redis, member) {
					redis.Do("DEL", fmt.Sprint("pos-ev:own:", shard))
				}
				deleted = time.Now()
			}
			return false
		})
		<-time.After(f.ttl)
	}))
	f.wantQuick(f.during("leases are given to another member", nil, func() {
		for _, shard := range leasesOf(redis, member) {
			redis.Do("SET", fmt.Sprint("pos-ev:own:", shard), f.members[1].name, "PX", fmt.Sprint(f.ttl.Milliseconds()))
		}
		testkit.Eventually(t, "they have been let go of", func() bool {
			return f.members[0].Metric(`downlink_lease_lost_total{reason="taken"}`) > 0
		})
		testkit.Eventually(t, "it has some again", func() bool { return len(leasesOf(redis, member)) > 10 })
	}))
	f.wantStill(f.during("leases and members are lost", nil, func() {
		redis.Do("DEL", "pos-ev:members")
		for shard := range 64 {
			redis.Do("DEL", fmt.Sprint("pos-ev:own:", shard), fmt.Sprint("pos-ev:gen:", shard))
		}
		<-time.After(f.ttl)
	}))
	f.judge()
}

// leasesOf lists the shards whose leases are a member's.
func leasesOf(redis *testkit.Redis, member string) (shards []int) {
	for shard := range 64 {
		if redis.Do("GET", fmt.Sprint("pos-ev:own:", shard)) == member {
			shards = append(shards, shard)
		}
	}
	return shards
}
