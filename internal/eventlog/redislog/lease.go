package redislog

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redisurl"

	"github.com/redis/rueidis"
)

//go:embed lua/lease.lua
var leaseSource string

//go:embed lua/members.lua
var membersSource string

// Events must not stop because memory is full.
var (
	leaseScript   = newScript("#!lua flags=allow-oom\n", leaseSource)
	membersScript = newScript("#!lua flags=allow-oom\n", membersSource)
)

var _ eventlog.LeaseKeeper = (*Log)(nil)

// leaseKeys are a shard's lease and the record of its generation, in the slot
// of its stream.
func (s *shard) leaseKeys() (lease, record string) {
	number := strconv.Itoa(s.index)
	base := strings.TrimSuffix(s.stream, number)
	return base + "own:" + number, base + "gen:" + number
}

// membersKey is in the slot of the group's streams.
func (g *group) membersKey() string {
	return strings.TrimSuffix(g.keys[0], strconv.Itoa(g.shards[0])) + "members"
}

// assemblies are the groups at whose servers the members are known: all servers
// of a list, one group of a cluster.
func (l *Log) assemblies() []*group {
	if l.place.form == redisurl.List {
		return l.groups
	}
	return l.groups[:1]
}

// Leases asks about shards of one group: in one script, but in a cluster, where
// the keys of one shard may be on their way to another server while those of
// another aren't, in one for each. It doesn't wait for replicas: what a failover
// loses of leases is put right by the next renewals, and until then by the
// generations.
func (l *Log) Leases(ctx context.Context, who eventlog.Claimant, asks []eventlog.LeaseAsk) ([]eventlog.LeaseState, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	if err := l.refused(); err != nil {
		return nil, err
	}
	first, err := l.shard(asks[0].Shard)
	if err != nil {
		return nil, err
	}
	g, each := first.group, len(asks)
	if l.atlas.cluster {
		each = 1
	}
	var calls []leaseCall
	for some := range slices.Chunk(asks, each) {
		c, err := l.leaseCall(g, who, some)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	results, err := g.home.runAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	states := make([]eventlog.LeaseState, 0, len(asks))
	for i, some := range slices.Collect(slices.Chunk(asks, each)) {
		found, err := readLeases(g.home.node(), &results[i], len(some))
		if err != nil {
			found = make([]eventlog.LeaseState, len(some))
			for k := range found {
				found[k].Err = err
			}
		}
		states = append(states, found...)
	}
	return states, nil
}

// A leaseCall is the keys and arguments of one run of the script.
type leaseCall struct{ keys, args []string }

func (l *Log) leaseCall(g *group, who eventlog.Claimant, asks []eventlog.LeaseAsk) (leaseCall, error) {
	c := leaseCall{args: []string{who.Name, who.Nonce, strconv.FormatInt(who.TTL.Milliseconds(), 10)}}
	for _, a := range asks {
		s, err := l.shard(a.Shard)
		if err != nil {
			return c, err
		}
		if g != s.group {
			return c, fmt.Errorf("shard %d is of another group than shard %d: ask about it by another call", a.Shard, g.shards[0])
		}
		lease, record := s.leaseKeys()
		c.keys = append(c.keys, lease, record)
		c.args = append(c.args, string(a.Want), strconv.FormatUint(a.Held, 10), strconv.FormatUint(a.Floor, 10))
	}
	return c, nil
}

// runAll runs the script for each call, in one pipeline, and once more for those
// that the server didn't know it for.
func (h *home) runAll(ctx context.Context, calls []leaseCall) ([]rueidis.RedisResult, error) {
	cmds := make([]rueidis.Completed, len(calls))
	for i, c := range calls {
		cmds[i] = leaseScript.bySHA(h.b(), c.keys, c.args)
	}
	results, err := h.doMulti(ctx, callLease, cmds...)
	if err != nil {
		return nil, err
	}
	var unknown []int
	cmds = cmds[:0]
	for i, c := range calls {
		if noScript(results[i].Error()) {
			unknown = append(unknown, i)
			cmds = append(cmds, leaseScript.whole(h.b(), c.keys, c.args))
		}
	}
	if len(unknown) == 0 {
		return results, nil
	}
	again, err := h.doMulti(ctx, callLease, cmds...)
	if err != nil {
		return nil, err
	}
	for k, i := range unknown {
		results[i] = again[k]
	}
	return results, nil
}

func readLeases(n *node, result *rueidis.RedisResult, count int) ([]eventlog.LeaseState, error) {
	all, err := result.ToArray()
	if err != nil {
		return nil, n.translate(err)
	}
	if len(all) != count {
		return nil, oddReply(nil)
	}
	states := make([]eventlog.LeaseState, count)
	for i := range all {
		if states[i], err = readLease(&all[i]); err != nil {
			return nil, oddReply(err)
		}
	}
	return states, nil
}

func readLease(m *rueidis.RedisMessage) (eventlog.LeaseState, error) {
	parts, err := m.ToArray()
	if err != nil || len(parts) != 6 {
		return eventlog.LeaseState{}, oddReply(err)
	}
	mine, err := parts[2].AsInt64()
	text := func(i int) string {
		s, e := parts[i].ToString()
		err = errors.Join(err, e)
		return s
	}
	number := func(i int) uint64 {
		n, e := strconv.ParseUint(text(i), 10, 64)
		err = errors.Join(err, e)
		return n
	}
	return eventlog.LeaseState{
		Owner: text(0), Generation: number(1), Mine: mine == 1, Last: text(3), Was: text(4), Since: number(5),
	}, err
}

// Members says who is there. Each server of a list knows the members, so that
// one that is away keeps nobody from being seen: a member is there if any
// server says so.
func (l *Log) Members(ctx context.Context, who eventlog.Claimant, says eventlog.Presence) (eventlog.Membership, error) {
	if err := l.refused(); err != nil {
		return eventlog.Membership{}, err
	}
	type answer struct {
		eventlog.Membership
		err error
	}
	places := l.assemblies()
	answers := make(chan answer, len(places))
	for _, g := range places {
		go func() { // ends with ctx, or the node's limit
			m, err := l.membersAt(ctx, g, who, says)
			answers <- answer{m, err}
		}()
	}
	var sum eventlog.Membership
	var failure error
	heard := false
	for range places {
		a := <-answers
		if a.err != nil {
			failure = a.err
			continue
		}
		sum = union(sum, a.Membership, !heard)
		heard = true
	}
	if !heard {
		return eventlog.Membership{}, failure
	}
	return sum, nil
}

// union is who is there by one of two answers. Somebody is a member himself
// only where all say so, or he would stop telling the others.
func union(a, b eventlog.Membership, first bool) eventlog.Membership {
	a.Taken = a.Taken || b.Taken
	a.Known = b.Known && (first || a.Known)
next:
	for _, m := range b.Members {
		for i := range a.Members {
			if a.Members[i].Name == m.Name {
				a.Members[i].Leaving = a.Members[i].Leaving || m.Leaving
				continue next
			}
		}
		a.Members = append(a.Members, m)
	}
	return a
}

func (l *Log) membersAt(ctx context.Context, g *group, who eventlog.Claimant, says eventlog.Presence) (eventlog.Membership, error) {
	args := []string{who.Name, who.Nonce, strconv.FormatInt(who.TTL.Milliseconds(), 10), string(says)}
	reply, err := g.home.eval(ctx, callLease, membersScript, []string{g.membersKey()}, args)
	if err != nil {
		return eventlog.Membership{}, err
	}
	parts, err := reply.ToArray()
	if err != nil || len(parts) < 2 || len(parts)%2 != 0 {
		return eventlog.Membership{}, oddReply(err)
	}
	taken, err1 := parts[0].AsInt64()
	known, err2 := parts[1].AsInt64()
	m := eventlog.Membership{Taken: taken == 1, Known: known == 1}
	for i := 2; i < len(parts); i += 2 {
		name, err3 := parts[i].ToString()
		leaving, err4 := parts[i+1].AsInt64()
		if err := errors.Join(err3, err4); err != nil {
			return eventlog.Membership{}, oddReply(err)
		}
		m.Members = append(m.Members, eventlog.MemberState{Name: name, Leaving: leaving == 1})
	}
	if err := errors.Join(err1, err2); err != nil {
		return eventlog.Membership{}, oddReply(err)
	}
	return m, nil
}
