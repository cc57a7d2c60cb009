package testkit

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"
)

// MasterSet is the name under which Sentinels watch a Pair.
const MasterSet = "events"

// A Pair is a primary and its replica, watched by Sentinels that promote the
// replica when the primary was killed, frozen or isolated and hasn't answered for
// a second. Else they have patience with it: it may only wait for a processor.
type Pair struct {
	// DownAfter is the Sentinels' down-after-milliseconds from when a server is
	// killed until AwaitPrimary has seen who takes its place.
	DownAfter time.Duration
	Servers   [2]*Redis // the first begins as the primary
	Sentinels []*Redis

	tb    testing.TB
	hasty bool
}

// StartPair starts both servers with the same options, and three Sentinels, and
// waits until the replica has everything and each Sentinel knows it.
func StartPair(tb testing.TB, opts ...RedisOption) *Pair {
	tb.Helper()
	p := &Pair{tb: tb, DownAfter: time.Second}
	for i := range p.Servers {
		p.Servers[i] = StartRedis(tb, opts...)
	}
	primary, replica := p.Servers[0], p.Servers[1]
	replica.Follow(primary)
	sentinel := []RedisOption{asSentinel()}
	if primary.onlyTLS {
		sentinel = append(sentinel, RedisTLSFrom(primary.certs))
	}
	for range 3 {
		p.Sentinels = append(p.Sentinels, StartRedis(tb, append(sentinel, RedisConfig(
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 2", MasterSet, primary.peerPort()),
			"sentinel down-after-milliseconds "+MasterSet+" "+patientMs,
			"sentinel failover-timeout "+MasterSet+" 2000",
		))...))
	}
	for _, s := range p.Sentinels {
		Eventually(tb, "the Sentinels know the replica and each other", func() bool {
			master := Fields(s.Do("SENTINEL", "MASTER", MasterSet))
			return master["num-slaves"] == "1" && master["num-other-sentinels"] == "2"
		})
	}
	for _, r := range p.Servers {
		r.missed = p.hurry
	}
	return p
}

// patientMs is after how many milliseconds a server is taken for dead that none of
// a test's doing has made so.
const patientMs = "30000"

func (p *Pair) hurry() {
	if !p.hasty {
		p.downAfter(strconv.FormatInt(p.DownAfter.Milliseconds(), 10))
	}
	p.hasty = true
}

// downAfter tells the Sentinels that run.
func (p *Pair) downAfter(ms string) {
	for _, s := range p.Sentinels {
		_, _ = s.Try("SENTINEL", "SET", MasterSet, "down-after-milliseconds", ms)
	}
}

func asSentinel() RedisOption { return func(r *Redis) { r.guards = true } }

// URL names the Sentinels, as a gateway is given them.
func (p *Pair) URL() string {
	return p.Servers[0].urlOf("+sentinel", p.Sentinels) + "/" + MasterSet
}

// Primary is the server that most Sentinels name, and Replica the other one.
func (p *Pair) Primary() *Redis {
	p.tb.Helper()
	votes := map[string]int{}
	for _, s := range p.Sentinels {
		if reply, err := s.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet); err == nil && reply != nil {
			addr := reply.([]any)
			votes[net.JoinHostPort(addr[0].(string), addr[1].(string))]++
		}
	}
	for _, s := range p.Servers {
		if votes[net.JoinHostPort("127.0.0.1", s.peerPort())] > len(p.Sentinels)/2 {
			return s
		}
	}
	p.tb.Fatalf("the Sentinels don't agree on a primary: %v", votes)
	return nil
}

// Replica is the server that isn't the primary.
func (p *Pair) Replica() *Redis {
	p.tb.Helper()
	return p.Other(p.Primary())
}

// Other is the one of the two servers that r is not.
func (p *Pair) Other(r *Redis) *Redis {
	if r == p.Servers[0] {
		return p.Servers[1]
	}
	return p.Servers[0]
}

// AwaitPrimary waits until every Sentinel names a server and it takes writes.
func (p *Pair) AwaitPrimary(r *Redis) {
	p.tb.Helper()
	Eventually(p.tb, "the Sentinels have promoted "+r.Addr(), func() bool { return p.leads(r) })
	p.downAfter(patientMs)
	p.hasty = false
}

// leads reports whether every Sentinel names a server and it takes writes.
func (p *Pair) leads(r *Redis) bool {
	for _, s := range p.Sentinels {
		reply, err := s.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet)
		addr, ok := reply.([]any)
		if err != nil || !ok || addr[1].(string) != r.peerPort() {
			return false
		}
	}
	return r.Role() == "master"
}

// Failover promotes the replica as an operator would, and waits until the old
// primary follows it. What the old one takes in between, and what the replica
// hasn't got yet, is lost: Sentinels hold no writers back.
func (p *Pair) Failover() {
	p.tb.Helper()
	old, next := p.Primary(), p.Replica()
	p.Promote(next)
	Eventually(p.tb, "the old primary is demoted", func() bool { return old.Role() == "slave" })
}

// Promote has the Sentinels promote the replica, and waits until they have; it is
// no fault if that has begun already. A Sentinel refuses while it doesn't know that
// the replica is well, and gives up what takes long.
func (p *Pair) Promote(replica *Redis) {
	p.tb.Helper()
	var again time.Time
	Eventually(p.tb, "the Sentinels promote "+replica.Addr(), func() bool {
		if p.leads(replica) {
			return true
		}
		if time.Now().After(again) && replica.Role() == "slave" {
			again = time.Now().Add(10 * time.Second)
			if _, err := p.Sentinels[0].Try("SENTINEL", "FAILOVER", MasterSet); err != nil {
				again = time.Now().Add(time.Second)
			}
		}
		return false
	})
}

// AwaitWell waits until the replica follows the primary and every Sentinel would
// promote it.
func (p *Pair) AwaitWell() {
	p.tb.Helper()
	p.Replica().AwaitLink("up")
	Eventually(p.tb, "every Sentinel finds the replica well", func() bool {
		for _, s := range p.Sentinels {
			reply, err := s.Try("SENTINEL", "REPLICAS", MasterSet)
			all, _ := reply.([]any)
			if err != nil || len(all) != 1 {
				return false
			}
			if f := Fields(all[0]); f["flags"] != "slave" || f["master-link-status"] != "ok" {
				return false
			}
		}
		return true
	})
}

// Fields reads a reply of names and values in turn.
func Fields(reply any) map[string]string {
	items, _ := reply.([]any)
	m := make(map[string]string, len(items)/2)
	for i := 0; i+1 < len(items); i += 2 {
		m[fmt.Sprint(items[i])] = fmt.Sprint(items[i+1])
	}
	return m
}
