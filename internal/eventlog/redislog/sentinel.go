package redislog

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// sentinels know who the primary is.
type sentinels struct {
	master string
	nodes  []*node
}

func newSentinels(p place, opts *Options) *sentinels {
	s := &sentinels{master: p.master}
	for _, t := range p.servers {
		t.db = 0
		s.nodes = append(s.nodes, newNode(t, opts))
	}
	return s
}

func (s *sentinels) close() {
	for _, n := range s.nodes {
		n.close(eventlog.ErrClosed)
	}
}

// look asks all Sentinels. The primary of the latest failover counts: a
// Sentinel that was cut off names the one before.
func (s *sentinels) look(ctx context.Context) (chart, error) {
	return latest(ctx, s.nodes, s.ask)
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
