package redislog

import (
	"context"
	"fmt"
	"math"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// Read waits until a shard of the group holds entries after its position.
func (l *Log) Read(ctx context.Context, group int, after []event.ID) ([]eventlog.Batch, error) {
	if group < 0 || group >= len(l.groups) || len(after) != len(l.groups[group].shards) {
		return nil, fmt.Errorf("read of group %d at %d positions: no such group, or not one position for each of its shards", group, len(after))
	}
	return l.groups[group].read(ctx, after)
}

// read has two ways. XREAD waits, and is cheap, but takes an entry of each
// stream whatever its size. So unless the end was reached a moment ago, and
// entries have been small since, what is there is fetched by a script that
// counts bytes.
func (g *group) read(ctx context.Context, after []event.ID) (batches []eventlog.Batch, err error) {
	t, s := &g.tail, g.home.at.Load()
	from := origin{s, g.source(s)}
	// Whoever reads goes on without a question as long as no read fails. Another
	// server may be on another branch, so the first read of it does.
	if last := t.last; last.seat != nil && last != from {
		g.forget()
		return nil, unavailable(errMoved)
	}
	t.last = from
	if !t.near(len(g.keys)) {
		batches, err = g.fetch(ctx, from, after)
	}
	if err == nil && len(batches) == 0 {
		batches, err = g.wait(ctx, from, after)
	}
	if err != nil {
		return g.astray(ctx, from, after, err)
	}
	return batches, nil
}

// near reports whether not much can have come since the end was reached.
func (t *tail) near(streams int) bool {
	return elapsed(t.ended) <= nearEnd && t.sizes.surely(mostBudget, streams)
}

// elapsed is the larger of what the monotonic and the wall clock say: the
// monotonic one stands still while the machine sleeps.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// forget is for when a read has failed: nothing is known of what the next one
// will find.
func (g *group) forget() {
	g.tail.last, g.tail.ended = origin{}, time.Time{}
	for _, s := range g.known {
		s.end()
	}
}

// astray goes on after an error: the streams may be elsewhere.
func (g *group) astray(ctx context.Context, from origin, after []event.ID, err error) ([]eventlog.Batch, error) {
	g.forget()
	if from.replica() {
		g.tail.standin.drop()
		return nil, g.tail.translate(from.node, err)
	}
	g.home.heed(nil, err)
	way, elsewhere := directionOf(err)
	switch {
	case !elsewhere:
		return nil, g.tail.translate(from.node, err)
	case way.word == "MOVED":
		g.home.move(from.seat, way.addr(from.node))
		return nil, unavailable(errMoved)
	}
	g.tail.last = from
	return g.readEach(ctx, after)
}

// wait returns what is there, or what comes first.
func (g *group) wait(ctx context.Context, from origin, after []event.ID) ([]eventlog.Batch, error) {
	t := &g.tail
	count := t.sizes.count(int(t.budget.Load()), len(g.keys))
	// Positions are never "$": it would lose what comes between two reads.
	cmd := g.home.b().Xread().Count(count).Block(t.block.Milliseconds()).
		Streams().Key(g.keys...).Id(t.asked.all(after)...).Build()
	began := time.Now()
	reply, err := t.do(ctx, from, t.limit, cmd)
	if rueidis.IsRedisNil(err) {
		t.ended = began
		return nil, nil // nothing came
	}
	if err != nil {
		return nil, err
	}
	batches, err := g.batches(reply, count, func(place int) event.ID { return after[place] })
	if drained(batches) {
		t.ended = began
	}
	return batches, err
}

func drained(batches []eventlog.Batch) bool {
	for i := range batches {
		if !batches[i].Drained {
			return false
		}
	}
	return true
}

// fetch returns what is there, and doesn't wait. Where the budget was spent, the
// next one begins.
func (g *group) fetch(ctx context.Context, from origin, after []event.ID) ([]eventlog.Batch, error) {
	t, n := &g.tail, len(g.keys)
	keys := append(append(make([]string, 0, n), g.keys[t.first:]...), g.keys[:t.first]...)
	args := pageArgs(limits{int(t.budget.Load()), math.MaxInt}, event.MaxID, n)
	texts := t.asked.all(after)
	args = append(append(args, texts[t.first:]...), texts[:t.first]...)
	began := time.Now()
	reply, err := t.do(ctx, from, t.brief, pageScript.bySHA(g.home.b(), keys, args))
	if noScript(err) {
		reply, err = t.do(ctx, from, t.brief, pageScript.whole(g.home.b(), keys, args))
	}
	if err != nil {
		return nil, err
	}
	looked, parts, err := readSlices(reply)
	if err != nil || looked > n {
		return nil, oddReply(err)
	}
	batches := make([]eventlog.Batch, 0, len(parts)+n-looked)
	for _, s := range parts {
		place := (t.first + s.place) % n
		b, err := g.batch(place, s.entries, after[place])
		if err != nil {
			return nil, err
		}
		b.Drained = !s.more
		batches = append(batches, b)
	}
	for i := looked; i < n; i++ {
		batches = append(batches, eventlog.Batch{Shard: g.shards[(t.first+i)%n]})
	}
	t.first = (t.first + looked) % n
	if drained(batches) {
		t.ended = began
	}
	return batches, nil
}

// splitPause is how long a read rests that found nothing, while it can't wait
// at the server because the group's slot is on its way to another one.
const splitPause = 50 * time.Millisecond

// readEach reads without waiting, stream by stream: each is on one of two
// servers just now.
func (g *group) readEach(ctx context.Context, after []event.ID) ([]eventlog.Batch, error) {
	var all []eventlog.Batch
	for i, key := range g.keys {
		args := append(pageArgs(limits{leastBudget, math.MaxInt}, event.MaxID, 1), after[i].String())
		reply, err := g.home.eval(ctx, callRead, pageScript, []string{key}, args)
		if err != nil {
			g.forget()
			return nil, err
		}
		_, parts, err := readSlices(reply)
		if err != nil {
			return nil, err
		}
		for _, s := range parts {
			b, err := g.batch(i, s.entries, after[i])
			if err != nil {
				return nil, err
			}
			b.Drained = !s.more
			all = append(all, b)
		}
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
// each stream after the position of its place.
func (g *group) batches(reply rueidis.RedisMessage, count int64, after func(place int) event.ID) ([]eventlog.Batch, error) {
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
		b, err := g.batch(place, m, after(place))
		if err != nil {
			return nil, err
		}
		// A waiter is woken with nothing when an entry came and went in one
		// script, as it does when a record is founded.
		if len(b.Entries) > 0 {
			b.Drained = int64(len(b.Entries)) < count
			batches = append(batches, b)
		}
	}
	return batches, nil
}

// batch reads what came of one stream after a position.
func (g *group) batch(place int, m rueidis.RedisMessage, after event.ID) (eventlog.Batch, error) {
	found, largest, err := entries(m, g.tail.maxPayload(), g.tail.sizes)
	if err != nil {
		return eventlog.Batch{}, err
	}
	if n := len(found); n > 0 {
		g.known[place].read(after, found[n-1].ID, largest)
	}
	return eventlog.Batch{Shard: g.shards[place], Entries: found}, nil
}
