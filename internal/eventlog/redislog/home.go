package redislog

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A home is where some keys live that are always together: a group of shards,
// or the guard. It is at one server at a time.
type home struct {
	// Set at construction.
	atlas *atlas
	slot  int // in a cluster

	at atomic.Pointer[seat]
	// settled is until when, in Unix nanoseconds, the word of a server that the
	// home has moved counts more than the map.
	settled atomic.Int64
}

// A seat is a home's stay at a server.
type seat struct {
	node  *node
	left  context.Context // ends when the home has moved on
	leave context.CancelFunc
}

// errMoved ends what was under way at a server that isn't asked any more.
var errMoved = errors.New("these shards have moved to another server of Redis")

func (h *home) node() *node { return h.at.Load().node }

// b makes commands.
func (h *home) b() rueidis.Builder { return h.node().client.B() }

// A sender sends commands to a server, in one pipeline, and returns the reply to
// each. With ask, it has the server execute them for a slot that is on its way
// there.
type sender func(ctx context.Context, n *node, ask bool, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error)

// asking sends commands that store nothing which has to outlive a failover.
func asking(call callName) sender {
	return func(ctx context.Context, n *node, ask bool, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
		results, err := n.doMulti(ctx, call, leave(n, ask, cmds)...)
		return without(ask, results), err
	}
}

// storing sends commands that store, as durably as the log is configured to.
func storing(call callName) sender {
	return func(ctx context.Context, n *node, ask bool, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
		results, err := n.store(ctx, call, leave(n, ask, cmds)...)
		return without(ask, results), err
	}
}

// leave puts an ASKING before each command; without takes the replies to them
// out again.
func leave(n *node, ask bool, cmds []rueidis.Completed) []rueidis.Completed {
	if !ask {
		return cmds
	}
	out := make([]rueidis.Completed, 0, 2*len(cmds))
	for _, c := range cmds {
		out = append(out, n.client.B().Arbitrary("ASKING").Build(), c)
	}
	return out
}

func without(ask bool, results []rueidis.RedisResult) []rueidis.RedisResult {
	if !ask {
		return results
	}
	out := make([]rueidis.RedisResult, 0, len(results)/2)
	for i := 1; i < len(results); i += 2 {
		out = append(out, results[i])
	}
	return out
}

// do sends one command and names the call in the metrics.
func (h *home) do(ctx context.Context, call callName, cmd rueidis.Completed) (rueidis.RedisMessage, error) {
	results, err := h.doMulti(ctx, call, cmd)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	m, err := results[0].ToMessage()
	return m, h.node().translate(err)
}

// eval runs a script and returns its reply.
func (h *home) eval(ctx context.Context, call callName, s script, keys, args []string) (rueidis.RedisMessage, error) {
	return h.run(ctx, asking(call), s, keys, args)
}

// run is eval by a sender.
func (h *home) run(ctx context.Context, send sender, s script, keys, args []string) (rueidis.RedisMessage, error) {
	results, err := h.through(ctx, send, s.bySHA(h.b(), keys, args))
	if err == nil && noScript(results[0].Error()) { // it has not run: the server was restarted, or never saw it
		results, err = h.through(ctx, send, s.whole(h.b(), keys, args))
	}
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	m, err := results[0].ToMessage()
	return m, h.node().translate(err)
}

// doMulti sends commands for this home's keys in one pipeline. An error
// concerns all of them; the errors in the results are for the caller to
// translate. A command that the server refused because the keys are elsewhere
// has not been executed, and is sent there.
func (h *home) doMulti(ctx context.Context, call callName, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	return h.through(ctx, asking(call), cmds...)
}

// through is doMulti by a sender.
func (h *home) through(ctx context.Context, send sender, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	if h.atlas.cluster {
		pin(cmds)
	}
	s := h.at.Load()
	results, err := send(ctx, s.node, false, cmds...)
	if h.heed(results, err); err != nil || !h.atlas.cluster {
		return results, err
	}
	return results, h.pursue(ctx, send, s, cmds, results)
}

// heed has the map looked at again if something says that it may have changed.
func (h *home) heed(results []rueidis.RedisResult, err error) {
	if h.atlas.locator == nil {
		return
	}
	if err != nil {
		h.atlas.doubt()
		return
	}
	for i := range results {
		if err := results[i].Error(); err != nil && suspicious(err) {
			h.atlas.doubt()
			return
		}
	}
}

// suspicious reports whether an error is of the kind that a server gives, or
// causes, when another one is to be asked.
func suspicious(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	if !ok {
		return true
	}
	switch word, _, _ := strings.Cut(refusal(reply.Error()), " "); word {
	case "READONLY", "MOVED", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "UNBLOCKED":
		return true
	}
	return false
}

// pin keeps commands whole after they were sent, so that they can be sent
// again.
func pin(cmds []rueidis.Completed) {
	for i := range cmds {
		cmds[i] = cmds[i].Pin()
	}
}

const (
	// maxMoves is how often one call follows keys to another server.
	maxMoves = 5
	// leastPatience and mostPatience are how long to wait before a command is
	// repeated whose keys are on two servers just now.
	leastPatience = 5 * time.Millisecond
	mostPatience  = 100 * time.Millisecond
)

// pursue sends commands again that were refused because their keys are on
// their way to another server, or there, until ctx ends. It changes results.
func (h *home) pursue(ctx context.Context, send sender, s *seat, cmds []rueidis.Completed, results []rueidis.RedisResult) error {
	ctx, cancel := s.node.bounded(ctx)
	defer cancel()
	patience := leastPatience
	for moves := 0; moves < maxMoves; {
		again, way := refused(results)
		switch {
		case len(again) == 0:
			return nil
		case way.word == "MOVED":
			moves++
			s = h.move(s, way.addr(s.node))
		case way.word == "TRYAGAIN":
			select {
			case <-ctx.Done():
				return nil // the results tell
			case <-time.After(patience):
				patience = min(2*patience, mostPatience)
			}
		}
		if err := h.resend(ctx, send, s, way, cmds, results, again); err != nil {
			return err
		}
	}
	return nil
}

// resend sends some of the commands again, and puts the replies in their place.
func (h *home) resend(ctx context.Context, send sender, s *seat, way direction, cmds []rueidis.Completed, results []rueidis.RedisResult, again []int) error {
	n, ask := s.node, way.word == "ASK"
	if ask {
		n = h.atlas.visit(way.addr(s.node))
	}
	some := make([]rueidis.Completed, len(again))
	for k, i := range again {
		some[k] = cmds[i]
	}
	replies, err := send(ctx, n, ask, some...)
	if err != nil {
		return err
	}
	for k, i := range again {
		results[i] = replies[k]
	}
	return nil
}

// A direction is what a server says of keys that it doesn't serve.
type direction struct {
	word string // MOVED, ASK or TRYAGAIN
	to   string // host:port; the host may be missing
}

// refused lists the results that weren't executed because of where the keys
// are, as the first of them says it.
func refused(results []rueidis.RedisResult) (again []int, way direction) {
	for i := range results {
		d, ok := directionOf(results[i].Error())
		if !ok || len(again) > 0 && d != way {
			continue
		}
		again, way = append(again, i), d
	}
	return again, way
}

func directionOf(err error) (direction, bool) {
	reply, ok := rueidis.IsRedisErr(err)
	if !ok {
		return direction{}, false
	}
	words := strings.Fields(reply.Error())
	switch {
	case len(words) == 3 && (words[0] == "MOVED" || words[0] == "ASK"):
		return direction{words[0], words[2]}, true
	case len(words) > 0 && words[0] == "TRYAGAIN":
		return direction{word: words[0]}, true
	}
	return direction{}, false
}

func elsewhere(err error) bool {
	_, ok := directionOf(err)
	return ok
}

// addr completes an address without a host: it is then the host of who said it.
func (d direction) addr(said *node) string {
	if !strings.HasPrefix(d.to, ":") {
		return d.to
	}
	host, _, _ := net.SplitHostPort(said.addr)
	return net.JoinHostPort(host, d.to[1:])
}

// wordCounts is for how long a server's word that a home has moved counts more
// than the map, which others may not have drawn anew yet.
const wordCounts = 2 * time.Second

// move takes the home from a seat to another server, and returns where it is
// then. If it has left that seat already, it stays where it is.
func (h *home) move(from *seat, addr string) *seat {
	h.settled.Store(time.Now().Add(wordCounts).UnixNano())
	h.atlas.reseat(h, from, addr)
	return h.at.Load()
}
