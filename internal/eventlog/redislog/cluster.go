package redislog

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"

	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// maxAsked is how many members of a cluster are asked in one look.
const maxAsked = 8

// members of a cluster know who serves which slots.
type members struct {
	way   target
	opts  *Options
	seeds []string

	// Guarded by mu.
	mu     sync.Mutex
	nodes  map[string]*node // whom we ask
	known  []string         // who served slots lately
	turn   int
	closed bool

	closing sync.WaitGroup
}

func newMembers(p place, opts *Options) *members {
	m := &members{way: p.servers[0], opts: opts, nodes: make(map[string]*node)}
	for _, t := range p.servers {
		m.seeds = append(m.seeds, t.addr)
	}
	return m
}

func (m *members) close() {
	m.mu.Lock()
	nodes := m.nodes
	m.nodes, m.closed = nil, true
	m.mu.Unlock()
	for _, n := range nodes {
		n.close(eventlog.ErrClosed)
	}
	m.closing.Wait()
}

// look asks some members. The latest configuration counts: a member that was
// frozen or cut off may take itself for a master still.
func (m *members) look(ctx context.Context) (chart, error) {
	c, err := latest(ctx, m.some(), m.ask)
	if err != nil {
		return c, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = m.known[:0]
	for addr := range c.servers() {
		m.known = append(m.known, addr)
	}
	return c, nil
}

// some are the members to ask: those that served slots lately, and those that
// the settings name, in turn if they are many.
func (m *members) some() []*node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	all := append([]string(nil), m.known...)
	for _, seed := range m.seeds {
		if !slices.Contains(all, seed) {
			all = append(all, seed)
		}
	}
	m.turn++
	chosen := make(map[string]*node)
	for i := range min(len(all), maxAsked) {
		addr := all[(m.turn+i)%len(all)]
		if chosen[addr] = m.nodes[addr]; chosen[addr] == nil {
			chosen[addr] = newNode(m.way.at(addr), m.opts)
			m.nodes[addr] = chosen[addr]
		}
	}
	out := make([]*node, 0, len(chosen))
	for _, n := range chosen {
		out = append(out, n)
	}
	m.forget(all)
	return out
}

// forget closes what belongs to nobody known.
func (m *members) forget(known []string) {
	for addr, n := range m.nodes {
		if !slices.Contains(known, addr) {
			delete(m.nodes, addr)
			m.closing.Go(func() { n.close(unavailable(errMoved)) })
		}
	}
}

func (m *members) ask(ctx context.Context, n *node) (chart, error) {
	b := n.client.B()
	results, err := n.doMulti(ctx, callLocate, b.ClusterInfo().Build(), b.ClusterSlots().Build())
	if err != nil {
		return chart{}, err
	}
	info, err := results[0].ToString()
	if err != nil {
		return chart{}, n.oddOr(err)
	}
	ranges, err := results[1].ToArray()
	if err != nil {
		return chart{}, n.oddOr(err)
	}
	var c chart
	c.epoch, _ = strconv.ParseUint(parseInfo(info)["cluster_current_epoch"], 10, 64)
	for i := range ranges {
		s, err := readStretch(&ranges[i], n)
		if err != nil {
			return chart{}, err
		}
		c.stretches = append(c.stretches, s)
	}
	return c, nil
}

// readStretch reads a part of what CLUSTER SLOTS answers: first slot, last
// slot, the master, its replicas; a server is its host, its port and more.
func readStretch(m *rueidis.RedisMessage, said *node) (stretch, error) {
	parts, err := m.ToArray()
	if err != nil || len(parts) < 3 {
		return stretch{}, oddReply(err)
	}
	from, err1 := parts[0].AsInt64()
	to, err2 := parts[1].AsInt64()
	server, err3 := parts[2].ToArray()
	if err1 != nil || err2 != nil || err3 != nil || len(server) < 2 {
		return stretch{}, oddReply(nil)
	}
	host, _ := server[0].ToString() // nil: it doesn't know its own name
	port, err := server[1].AsInt64()
	if err != nil {
		return stretch{}, oddReply(err)
	}
	if host == "" {
		host, _, _ = net.SplitHostPort(said.addr)
	}
	return stretch{int(from), int(to), net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
}
