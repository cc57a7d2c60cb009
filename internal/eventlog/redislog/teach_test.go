package redislog

import (
	"fmt"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// TestNothingIsTaughtBehindAFailure: a server that has just been restarted refuses
// the first appends of a batch while it loads its data, and the script with them;
// the later ones it doesn't know. They aren't stored then, or a device would get
// them before the first ones, which their publisher repeats.
func TestNothingIsTaughtBehindAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, testkit.RedisUser("gateway", "s3cret", leastRules))
	batch := make([]eventlog.Append, 2)
	for shard := range batch {
		device := ""
		for i := 0; device == ""; i++ {
			if name := fmt.Sprint("device-", i); event.Shard(name, r.Shards()) == shard {
				device = name
			}
		}
		batch[shard] = eventlog.Append{
			Shard:  shard,
			Events: []event.Event{{Target: device, Type: "t", Payload: "p"}},
			Once:   &eventlog.Once{Scope: "s", Key: device, Fingerprint: "f"},
		}
	}
	for _, res := range r.Append(t.Context(), batch) {
		if res.Err != nil {
			t.Fatalf("while all is well: %v", res.Err)
		}
	}
	// The permissions stand for a server that refuses at first.
	r.redis.Do("ACL", "SETUSER", "gateway", "-script|load", "resetkeys", "~"+r.byShard[1].stream+"*", "~*:meta")
	r.redis.Do("SCRIPT", "FLUSH")
	before := r.redis.Do("XLEN", r.byShard[1].stream)
	for i := range batch {
		batch[i].Once.Key += " again"
	}
	for i, res := range r.Append(t.Context(), batch) {
		if res.Err == nil {
			t.Errorf("append %d was stored", i)
		}
	}
	if after := r.redis.Do("XLEN", r.byShard[1].stream); after != before {
		t.Errorf("the second shard has %v entries, had %v", after, before)
	}
	r.redis.Do("ACL", "SETUSER", "gateway", "resetkeys", "~pos-ev:*")
	for i, res := range r.Append(t.Context(), batch) {
		if res.Err != nil {
			t.Errorf("append %d, with nothing in its way: %v", i, res.Err)
		}
	}
}
