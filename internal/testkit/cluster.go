package testkit

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots of a Redis Cluster.
const slots = 16384

// A Cluster is a Redis Cluster: masters, each with the same number of replicas. A
// server that wasn't killed, frozen or isolated is given time to answer: it may only
// wait for a processor.
type Cluster struct {
	// NodeTimeout is the servers' cluster-node-timeout from when one of them is
	// killed, or is to be replaced, until AwaitMaster has seen who takes its place.
	NodeTimeout time.Duration
	Servers     []*Redis // the masters first, then a replica of each in turn

	tb    testing.TB
	ids   map[*Redis]string
	hasty bool
}

// StartCluster starts a cluster and waits until every server finds it well.
func StartCluster(tb testing.TB, masters, replicas int, opts ...RedisOption) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, NodeTimeout: 2 * time.Second, ids: make(map[*Redis]string)}
	for range masters * (1 + replicas) {
		r := StartRedis(tb, append(opts, func(r *Redis) { r.busPort = -1 })...)
		c.Servers = append(c.Servers, r)
		c.ids[r] = r.Do("CLUSTER", "MYID").(string)
	}
	c.nodeTimeout(patientMs)
	for i, r := range c.Servers[:masters] {
		r.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/masters), strconv.Itoa((i+1)*slots/masters-1))
	}
	first := c.Servers[0]
	for i, r := range c.Servers {
		r.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if r != first {
			host, port := first.HostPort()
			r.Do("CLUSTER", "MEET", host, port, strconv.Itoa(first.busPort))
		}
	}
	c.await("every server knows every other", func(r *Redis) bool {
		return clusterInfo(r, "cluster_known_nodes") == strconv.Itoa(len(c.Servers))
	})
	for i, r := range c.Servers[masters:] {
		r.Do("CLUSTER", "REPLICATE", c.ids[c.Servers[i%masters]])
	}
	for _, r := range c.Servers[masters:] {
		r.AwaitLink("up")
	}
	c.AwaitWell()
	for _, r := range c.Servers {
		r.missed = c.hurry
	}
	return c
}

// AwaitWell waits until every server that runs finds all slots served.
func (c *Cluster) AwaitWell() {
	c.tb.Helper()
	c.await("the cluster is well", func(r *Redis) bool { return clusterInfo(r, "cluster_state") == "ok" })
}

func (c *Cluster) hurry() {
	if !c.hasty {
		c.nodeTimeout(strconv.FormatInt(c.NodeTimeout.Milliseconds(), 10))
	}
	c.hasty = true // once: one that is frozen doesn't answer
}

// nodeTimeout tells the servers that run.
func (c *Cluster) nodeTimeout(ms string) {
	for _, r := range c.Servers {
		if r.cmd != nil {
			_, _ = r.Try("CONFIG", "SET", "cluster-node-timeout", ms)
		}
	}
}

// State is what a server calls the cluster: ok or fail.
func (c *Cluster) State(r *Redis) string { return clusterInfo(r, "cluster_state") }

// await waits until something holds for every server that runs.
func (c *Cluster) await(what string, ok func(*Redis) bool) {
	c.tb.Helper()
	for _, r := range c.Servers {
		if r.cmd != nil {
			Eventually(c.tb, what, func() bool { return ok(r) })
		}
	}
}

func clusterInfo(r *Redis, field string) string {
	reply, err := r.Try("CLUSTER", "INFO")
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(fmt.Sprint(reply), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

// URL names all servers, as a gateway is given them.
func (c *Cluster) URL() string {
	return c.Servers[0].urlOf("+cluster", c.Servers)
}

// SlotOf is the slot of a key.
func (c *Cluster) SlotOf(key string) int {
	c.tb.Helper()
	return int(c.Servers[0].Do("CLUSTER", "KEYSLOT", key).(int64))
}

// MasterOf is the server that serves a slot, by the word of one that runs.
func (c *Cluster) MasterOf(slot int) *Redis {
	c.tb.Helper()
	for _, asked := range c.Servers {
		if asked.cmd == nil {
			continue
		}
		if master := c.masterOf(slot, asked); master != nil {
			return master
		}
	}
	c.tb.Fatalf("nobody serves slot %d", slot)
	return nil
}

// masterOf is MasterOf by the word of one server; nil if it knows nobody.
func (c *Cluster) masterOf(slot int, asked *Redis) *Redis {
	c.tb.Helper()
	reply, err := asked.Try("CLUSTER", "SLOTS")
	if err != nil {
		return nil
	}
	for _, entry := range reply.([]any) {
		e := entry.([]any)
		if from, to := e[0].(int64), e[1].(int64); int64(slot) < from || int64(slot) > to {
			continue
		}
		master := e[2].([]any)
		return c.at(net.JoinHostPort(master[0].(string), strconv.FormatInt(master[1].(int64), 10)))
	}
	return nil
}

func (c *Cluster) at(addr string) *Redis {
	c.tb.Helper()
	for _, r := range c.Servers {
		if r.Addr() == addr {
			return r
		}
	}
	c.tb.Fatalf("no server at %s", addr)
	return nil
}

// ReplicaOf is a running replica of a master.
func (c *Cluster) ReplicaOf(master *Redis) *Redis {
	c.tb.Helper()
	for _, r := range c.Servers {
		if r.cmd != nil && r.Role() == "slave" && r.Info("replication", "master_port") == strconv.Itoa(master.port) {
			return r
		}
	}
	c.tb.Fatalf("%s has no replica", master.Addr())
	return nil
}

// Failover promotes a replica as an operator would, without a loss, and waits
// until everybody knows.
func (c *Cluster) Failover(replica *Redis) {
	c.tb.Helper()
	// A master votes for one replica of another once in two node timeouts, and an
	// election that came to nothing is repeated after four.
	c.hurry()
	var asked time.Time
	Eventually(c.tb, replica.Addr()+" takes over", func() bool {
		if time.Since(asked) > 6*time.Second { // the server gives up after 5
			_, _ = replica.Try("CLUSTER", "FAILOVER") // refused if it has just happened, or while the master seems to be away
			asked = time.Now()
		}
		return replica.Role() == "master"
	})
	c.AwaitMaster(replica)
}

// AwaitMaster waits until every server that runs takes this one for a master.
func (c *Cluster) AwaitMaster(r *Redis) {
	c.tb.Helper()
	c.await(r.Addr()+" is a master", func(asked *Redis) bool {
		reply, err := asked.Try("CLUSTER", "NODES")
		for line := range strings.SplitSeq(fmt.Sprint(reply), "\n") {
			if fields := strings.Fields(line); len(fields) > 8 && fields[0] == c.ids[r] {
				return err == nil && strings.Contains(fields[2], "master")
			}
		}
		return false
	})
	c.AwaitWell()
	c.nodeTimeout(patientMs)
	c.hasty = false
}

// AwaitFollower waits until a master has a replica again that has everything.
func (c *Cluster) AwaitFollower(master *Redis) {
	c.tb.Helper()
	Eventually(c.tb, master.Addr()+" has a replica", func() bool {
		for _, r := range c.Servers {
			if r.cmd != nil && r != master && r.Info("replication", "master_port") == strconv.Itoa(master.port) &&
				r.Info("replication", "master_link_status") == "up" {
				return true
			}
		}
		return false
	})
	c.AwaitWell()
}

// BeginMigration marks a slot as being on its way; EndMigration is due.
func (c *Cluster) BeginMigration(slot int, to *Redis) (from *Redis) {
	c.tb.Helper()
	from = c.MasterOf(slot)
	to.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.ids[from])
	from.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.ids[to])
	return from
}

// MoveKeys moves up to so many keys of a slot that is on its way, and says how
// many there were.
func (c *Cluster) MoveKeys(slot int, from, to *Redis, most int) (moved int) {
	c.tb.Helper()
	keys := from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(most)).([]any)
	host, port := to.HostPort()
	for _, key := range keys {
		from.Do("MIGRATE", host, port, key.(string), "0", "60000")
	}
	return len(keys)
}

// EndMigration says that a slot has arrived.
func (c *Cluster) EndMigration(slot int, from, to *Redis) {
	c.tb.Helper()
	for _, r := range []*Redis{to, from} { // the new owner first: nobody may find none
		r.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", c.ids[to])
	}
	c.await("the slot's new place is known", func(r *Redis) bool {
		return c.masterOf(slot, r) == to
	})
}

// Migrate moves a whole slot.
func (c *Cluster) Migrate(slot int, to *Redis) {
	c.tb.Helper()
	from := c.BeginMigration(slot, to)
	for c.MoveKeys(slot, from, to, 10) > 0 {
	}
	c.EndMigration(slot, from, to)
}
