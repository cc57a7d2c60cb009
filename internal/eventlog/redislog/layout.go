package redislog

import (
	"context"
	"fmt"
	"sync/atomic"

	"downlink/internal/eventlog/redisurl"
)

// maxGroups is how many groups of shards a cluster can have.
const maxGroups = 256

// groupCount is how many groups of shards there are: what one blocking read
// serves must be on one server and, in a cluster, in one slot.
func (l *Log) groupCount() int {
	switch l.place.form {
	case redisurl.List:
		return min(len(l.place.servers), l.opts.Shards)
	case redisurl.Cluster:
		return min(l.opts.Groups, l.opts.Shards)
	default:
		return 1
	}
}

// arrange finds out which server is whose home, and makes the groups.
func (l *Log) arrange(ctx context.Context) error {
	l.byShard = make([]shard, l.opts.Shards)
	a, p := l.atlas, l.place
	a.way, a.cluster = p.servers[0], p.form == redisurl.Cluster
	switch p.form {
	case redisurl.Sentinel:
		a.locator = newSentinels(p, a.opts)
	case redisurl.Cluster:
		a.locator = newMembers(p, a.opts)
	default:
		for i := range l.groupCount() {
			h := a.settle(p.servers[i], 0)
			l.addGroup(h, l.addGuard(h, i), "")
		}
		return nil
	}
	c, err := a.locator.look(ctx)
	if err != nil {
		return fmt.Errorf("asking who serves the log: %w", err)
	}
	return l.follow(c)
}

// follow makes the groups where a map says that they are.
func (l *Log) follow(c chart) error {
	home := func(slot int) (*home, error) {
		addr := c.at(slot)
		if addr == "" {
			return nil, unavailable(fmt.Errorf("nobody serves slot %d of the cluster", slot))
		}
		return l.atlas.settle(l.atlas.way.at(addr), slot), nil
	}
	if l.place.form == redisurl.Sentinel {
		h, err := home(0)
		if err == nil {
			l.addGroup(h, l.addGuard(h, 0), "")
		}
		return err
	}
	h, err := home(slotOf(l.opts.Prefix + ":meta"))
	if err != nil {
		return err
	}
	g := l.addGuard(h, 0)
	for _, tag := range tagsOf(l.groupCount()) {
		if h, err = home(slotOf(tag)); err != nil {
			return err
		}
		l.addGroup(h, g, "{"+tag+"}:")
	}
	return nil
}

func (l *Log) addGuard(h *home, index int) *guard {
	g := &guard{home: h, want: l.settings(index)}
	l.guards = append(l.guards, g)
	return g
}

// addGroup adds the next group: shard s is in group s % groups. tag is a hash
// tag with its braces and a colon, or empty: a cluster has one for each group.
func (l *Log) addGroup(h *home, guard *guard, tag string) {
	g := &group{home: h, guard: guard, places: make(map[string]int)}
	g.tail = newTail(&l.opts)
	for i := len(l.groups); i < l.opts.Shards; i += l.groupCount() {
		key := fmt.Sprintf("%s:%s%d", l.opts.Prefix, tag, i)
		place := len(g.shards)
		g.places[key] = place
		g.shards = append(g.shards, i)
		g.keys = append(g.keys, key)
		l.byShard[i] = shard{
			index: i, home: h, group: g, place: place,
			stream: key, record: key + ":sweep", notes: key + ":gone", revoked: key + ":revoked", positions: key + ":pos",
			foreign: new(atomic.Uint64), prune: new(pruner), acked: new(acked), known: new(small),
		}
		g.known = append(g.known, l.byShard[i].known)
	}
	g.tail.asked, g.along.known = newAsked(len(g.keys)), newAsked(len(g.keys))
	l.groups = append(l.groups, g)
}
