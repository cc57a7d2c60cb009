package redislog

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// sentinels know who the primary is.
type sentinels struct {
	master string
	nodes  []*node
	// open are the same without user and password: the Sentinels may have
	// others' or none, while the servers want ours.
	open map[*node]*node
}

func newSentinels(p place, opts *Options) *sentinels {
	s := &sentinels{master: p.master, open: make(map[*node]*node)}
	for _, t := range p.servers {
		t.db = 0
		n := newNode(t, opts)
		s.nodes = append(s.nodes, n)
		if t.password != "" {
			t.user, t.password = "", ""
			s.open[n] = newNode(t, opts)
		}
	}
	return s
}

func (s *sentinels) close() {
	for _, n := range s.nodes {
		n.close(eventlog.ErrClosed)
		if o := s.open[n]; o != nil {
			o.close(eventlog.ErrClosed)
		}
	}
}

// look asks all Sentinels. The primary of the latest failover counts: a
// Sentinel that was cut off names the one before.
func (s *sentinels) look(ctx context.Context) (chart, error) {
	return latest(ctx, s.nodes, s.enter)
}

// enter asks with the URL's user, and without where that one is unknown.
func (s *sentinels) enter(ctx context.Context, n *node) (chart, error) {
	c, err := s.ask(ctx, n)
	if open := s.open[n]; open != nil && err != nil && strings.Contains(err.Error(), "WRONGPASS") {
		return s.ask(ctx, open)
	}
	return c, err
}

func (s *sentinels) ask(ctx context.Context, n *node) (chart, error) {
	b := n.client.B()
	results, err := n.doMulti(ctx, callLocate,
		b.SentinelGetMasterAddrByName().Master(s.master).Build(),
		b.Arbitrary("SENTINEL", "MASTER").Args(s.master).Build())
	if err != nil {
		return chart{}, err
	}
	addr, err := results[0].AsStrSlice()
	if rueidis.IsRedisNil(err) {
		return chart{}, unavailable(fmt.Errorf("the Sentinel %s knows no primary named %q", n.addr, s.master))
	}
	if err != nil || len(addr) != 2 {
		return chart{}, n.oddOr(err)
	}
	fields, err := results[1].AsStrMap()
	if err != nil {
		return chart{}, n.oddOr(err)
	}
	epoch, _ := strconv.ParseUint(fields["config-epoch"], 10, 64)
	return chart{epoch: epoch, stretches: []stretch{{0, slots - 1, net.JoinHostPort(addr[0], addr[1])}}}, nil
}

// oddOr is an error of the contract for a reply that isn't as it should be.
func (n *node) oddOr(err error) error {
	if err == nil {
		return oddReply(nil)
	}
	return n.translate(err)
}
