package chaos

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"downlink/internal/event"
	"downlink/internal/testkit"
)

// watchMasters notes failovers that no fault asked for: on a busy machine a
// server may seem to be gone that isn't. They cost what any failover does.
func (r *run) watchMasters(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := r.store.masters()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := r.store.masters()
		if now == "" || now == last {
			continue
		}
		last = now
		if at := r.now(); !r.chronicle.failingOver(at) {
			r.tb.Logf("%7.2fs a failover that wasn't asked for", at.Seconds())
			i := r.store.lossy.incident("a failover that wasn't asked for")
			r.chronicle.open(i, at)
			i.from = max(at-5*time.Second, 0) // nobody has looked at it yet
			r.chronicle.close(i, at)
		}
	}
}

// failingOver reports whether a fault is at work, or was just now, that replaces
// servers.
func (c *chronicle) failingOver(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.incidents, func(i *incident) bool {
		return i.shard == -1 && slices.Contains(i.reasons, event.LogRewound) && now-2*time.Second < i.until
	})
}

// named is the address that most Sentinels give; empty if they don't agree.
func named(pair *testkit.Pair) string {
	votes := make(map[string]int)
	for _, s := range pair.Sentinels {
		reply, err := s.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", testkit.MasterSet)
		if addr, ok := reply.([]any); err == nil && ok {
			votes[net.JoinHostPort(fmt.Sprint(addr[0]), fmt.Sprint(addr[1]))]++
		}
	}
	for addr, n := range votes {
		if n > len(pair.Sentinels)/2 {
			return addr
		}
	}
	return ""
}

// mastersOf are the masters of a cluster, by the word of the first that answers.
func mastersOf(c *testkit.Cluster) string {
	for _, s := range c.Servers {
		reply, err := s.Try("CLUSTER", "SLOTS")
		ranges, ok := reply.([]any)
		if err != nil || !ok {
			continue
		}
		var all []string
		for _, one := range ranges {
			master, _ := one.([]any)[2].([]any)
			if at := fmt.Sprint(master[1]); !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	return ""
}
