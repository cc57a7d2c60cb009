package redislog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// How large the reply to one Read may be, in bytes. A reply that didn't come in
// time halves it, so that a slow line or a loaded server is asked for less each
// time instead of for the same again; one that came doubles it.
const (
	leastBudget = 64 << 10
	mostBudget  = 8 << 20
)

// A tail is the connection on which one group's blocking reads wait. Nothing
// else may use it: Redis answers no other command on it meanwhile.
type tail struct {
	// Set at construction.
	block time.Duration // how long the server waits
	limit time.Duration // how long we do: a frozen server doesn't keep its own limit
	sizes *sizer
	// maxPayload: events over it are read as FaultTooLarge; 0 means no limit. It is
	// asked when a reply is there: it may have been raised, and an event stored
	// under it, while the read was blocked.
	maxPayload func() int

	asked asked
	*wire

	standin *standin

	// last is where the last read was, if it didn't fail. For one read at a time.
	last origin
}

// An origin is who is read: the server at a seat, or a replica of it.
type origin struct {
	seat *seat
	node *node
}

func (o origin) replica() bool { return o.node != o.seat.node }

// asked is the positions of the last read, as text: most of them stay as they
// are from one to the next. For one read at a time.
type asked struct {
	positions []event.ID
	texts     []string
}

func newAsked(places int) asked {
	return asked{positions: make([]event.ID, places), texts: make([]string, places)}
}

// at gives the text of the position of the shard at a place.
func (a *asked) at(place int, id event.ID) string {
	if a.texts[place] == "" || a.positions[place] != id {
		a.positions[place], a.texts[place] = id, id.String()
	}
	return a.texts[place]
}

// all gives the text of each position.
func (a *asked) all(positions []event.ID) []string {
	for i, id := range positions {
		a.at(i, id)
	}
	return a.texts
}

// A wire is the connection itself, guarded by mu: a Read that nobody waits for
// any more may still be ending when the next one begins.
type wire struct {
	mu      sync.Mutex
	node    *node                   // to whom it is
	client  rueidis.DedicatedClient // nil: connect first
	release func()

	budget atomic.Int64
}

func newTail(opts *Options) tail {
	t := tail{block: opts.BlockTime, limit: opts.BlockTime + opts.CallTimeout, sizes: newSizer(),
		maxPayload: opts.MaxEventBytes, wire: new(wire), standin: &standin{wanted: opts.ReadReplica}}
	t.budget.Store(mostBudget)
	return t
}

// Read waits until a shard of the group holds entries after its position.
func (l *Log) Read(ctx context.Context, group int, after []event.ID) ([]eventlog.Batch, error) {
	if group < 0 || group >= len(l.groups) || len(after) != len(l.groups[group].shards) {
		return nil, fmt.Errorf("read of group %d at %d positions: no such group, or not one position for each of its shards", group, len(after))
	}
	return l.groups[group].read(ctx, after)
}

func (g *group) read(ctx context.Context, after []event.ID) ([]eventlog.Batch, error) {
	t, s := &g.tail, g.home.at.Load()
	from := origin{s, g.source(s)}
	// Whoever reads goes on without a question as long as no read fails. Another
	// server may be on another branch, so the first read of it does.
	if last := t.last; last.seat != nil && last != from {
		t.last = origin{}
		return nil, unavailable(errMoved)
	}
	t.last = from
	count := t.sizes.count(int(t.budget.Load()), len(g.keys))
	// Positions are never "$": it would lose what comes between two reads.
	cmd := g.home.b().Xread().Count(count).Block(t.block.Milliseconds()).
		Streams().Key(g.keys...).Id(t.asked.all(after)...).Build()
	reply, err := t.do(ctx, from, cmd)
	if rueidis.IsRedisNil(err) {
		return nil, nil // nothing came
	}
	if err == nil {
		return g.batches(reply, count)
	}
	t.last = origin{}
	if from.replica() {
		t.standin.drop()
		return nil, t.translate(from.node, err)
	}
	g.home.heed(nil, err)
	way, elsewhere := directionOf(err)
	switch {
	case !elsewhere:
		return nil, t.translate(s.node, err)
	case way.word == "MOVED":
		g.home.move(s, way.addr(s.node))
		return nil, unavailable(errMoved)
	}
	t.last = from
	return g.readEach(ctx, after)
}

// splitPause is how long a read rests that found nothing, while it can't wait
// at the server because the group's slot is on its way to another one.
const splitPause = 50 * time.Millisecond

// readEach reads without waiting, stream by stream: each is on one of two
// servers just now.
func (g *group) readEach(ctx context.Context, after []event.ID) ([]eventlog.Batch, error) {
	count := g.tail.sizes.count(leastBudget*len(g.keys), len(g.keys))
	var all []eventlog.Batch
	for i, key := range g.keys {
		results, err := g.home.doMulti(ctx, callRead, g.home.b().Xread().Count(count).Streams().Key(key).Id(after[i].String()).Build())
		var reply rueidis.RedisMessage
		if err == nil {
			reply, err = results[0].ToMessage()
		}
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			g.tail.last = origin{}
			return nil, g.tail.translate(g.home.node(), err)
		}
		found, err := g.batches(reply, count)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(splitPause):
		}
	}
	return all, nil
}

// batches reads what XREAD returned, having been asked for count entries of
// each stream.
func (g *group) batches(reply rueidis.RedisMessage, count int64) ([]eventlog.Batch, error) {
	streams, err := reply.AsMap()
	if err != nil {
		return nil, oddReply(err)
	}
	batches := make([]eventlog.Batch, 0, len(streams))
	for key, m := range streams {
		place, ok := g.places[key]
		if !ok {
			return nil, oddReply(nil)
		}
		found, err := entries(m, g.tail.maxPayload(), g.tail.sizes)
		if err != nil {
			return nil, err
		}
		// A waiter is woken with nothing when an entry came and went in one
		// script, as it does when a record is founded.
		if len(found) > 0 {
			batches = append(batches, eventlog.Batch{
				Shard: g.shards[place], Entries: found, Drained: int64(len(found)) < count,
			})
		}
	}
	return batches, nil
}

// do runs one blocking command and gives the connection up if it fails. It
// returns the client's errors.
func (t *tail) do(ctx context.Context, from origin, cmd rueidis.Completed) (rueidis.RedisMessage, error) {
	bounded, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	defer context.AfterFunc(from.seat.left, cancel)()
	t.standin.begin(cancel)
	began := time.Now()
	results, err := run(bounded, from.node, true, func(work context.Context) []rueidis.RedisResult {
		return t.wire.do(work, from, cmd)
	})
	if err == nil {
		err = results[0].Error()
	}
	if from.replica() && (err == nil || rueidis.IsRedisNil(err)) {
		if lost := t.standin.follows(results[1]); lost != nil {
			err = lost
		}
	}
	switch {
	case ctx.Err() != nil:
		return rueidis.RedisMessage{}, unavailable(ctx.Err())
	case err == nil || rueidis.IsRedisNil(err):
		t.budget.Store(min(2*t.budget.Load(), mostBudget))
		m, _ := results[0].ToMessage()
		return m, err
	case from.seat.left.Err() != nil && from.node.base.Err() == nil:
		return rueidis.RedisMessage{}, unavailable(errMoved)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.budget.Store(max(t.budget.Load()/2, leastBudget))
	}
	from.node.metrics.observe(callRead, time.Since(began), err)
	return rueidis.RedisMessage{}, err
}

// translate is an error of the contract.
func (t *tail) translate(n *node, err error) error {
	if errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrClosed) {
		return err
	}
	return n.translate(err)
}

// do sends a read and, behind one from a replica, the question whom it follows.
func (w *wire) do(ctx context.Context, from origin, cmd rueidis.Completed) []rueidis.RedisResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := from.node
	if err := ctx.Err(); err != nil {
		return []rueidis.RedisResult{rueidis.NewErrorResult(err)}
	}
	if w.node != n {
		w.dropLocked()
	}
	if w.client == nil {
		w.client, w.release = n.client.Dedicate()
		w.node = n
		n.metrics.dials.Inc()
		if from.replica() {
			// In a cluster it would send us to its primary; elsewhere it refuses.
			_ = w.client.Do(ctx, w.client.B().Readonly().Build()).Error()
		}
	}
	cmds := []rueidis.Completed{cmd}
	if from.replica() {
		cmds = append(cmds, w.client.B().Info().Section("replication").Build())
	}
	results := w.client.DoMulti(ctx, cmds...)
	// After an error nobody knows which reply comes next on this connection.
	if results[0].NonRedisError() != nil || n.base.Err() != nil {
		w.dropLocked()
	}
	return results
}

func (w *wire) dropLocked() {
	if w.client == nil {
		return
	}
	w.client.Close()
	w.release()
	w.client = nil
}
