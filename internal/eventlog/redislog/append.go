package redislog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// Append stores a batch in one pipeline: an XADD for each event, or one script
// for an idempotent Append; where a device has several they are a transaction.
// IDs come from Redis's clock, and nothing is trimmed. It repeats nothing by
// itself: an answer that got lost may have been a success.
func (l *Log) Append(ctx context.Context, batch []eventlog.Append) []eventlog.Result {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.opts.CallTimeout)
		defer cancel()
	}
	results := eventlog.NewResults(batch)
	pipes := make([]*pipe, 0, 1) // one for each server, of which there are few
	var room [1]route
	way := routes(room[:0])
	for i := range batch {
		s, err := l.shard(batch[i].Shard)
		if err == nil {
			err = l.refused()
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		n := way.to(s.home)
		at := slices.IndexFunc(pipes, func(p *pipe) bool { return p.node == n })
		if at < 0 {
			at = len(pipes)
			pipes = append(pipes, newPipe(ctx, n, len(batch)))
		}
		pipes[at].add(s, &batch[i], &results[i], l.opts.Window.Milliseconds())
	}
	for _, p := range pipes {
		p.submit(len(pipes) == 1)
	}
	for _, p := range pipes {
		p.finish(ctx)
	}
	return results
}

// routes are where one call sends what it stores. A home that moves while the
// call is put together would have its later events stored at the new server, and
// the earlier ones refused at the old: what the publisher repeats would come
// behind them.
type routes []route

type route struct {
	home *home
	node *node
}

// to is the server that the home was at when it was first asked for.
func (r *routes) to(h *home) *node {
	for _, one := range *r {
		if one.home == h {
			return one.node
		}
	}
	n := h.node()
	*r = append(*r, route{h, n})
	return n
}

// A pipe is the commands of one Append call for one server.
type pipe struct {
	// Owned by the caller, lent to the combiner from submit until done.
	node  *node
	ctx   context.Context // has a deadline
	takes []take          // from submit on, those of a unit stand together
	cmds  []rueidis.Completed
	bytes int       // of the events, about
	began time.Time // when it was submitted

	// Room for the usual case.
	oneCmd  [1]rueidis.Completed
	oneTake [1]take

	// Owned by the combiner until done is closed; nil if the caller was it.
	done    chan struct{}
	replies []rueidis.RedisResult // to cmds
	conn    link                  // over which they came
	lacking bool                  // the replicas don't have it
	err     error
}

// A take is a command that stores, and where its reply belongs: to one event of
// a result, or (onceReply) to all of it.
type take struct {
	cmd    rueidis.Completed
	shard  *shard
	device string // that it is for; "" if there are several
	joined bool   // it is one unit with the take before it
	result *eventlog.Result
	event  int
}

const onceReply = -1

// mostFields is how many words the fields of an entry are at most.
const mostFields = 12

func newPipe(ctx context.Context, n *node, appends int) *pipe {
	p := &pipe{node: n, ctx: ctx}
	p.takes = p.oneTake[:0]
	if appends > 1 {
		p.takes = make([]take, 0, appends)
	}
	return p
}

func (p *pipe) add(s *shard, a *eventlog.Append, result *eventlog.Result, windowMs int64) {
	if a.Once == nil {
		for i := range a.Events {
			var room [1 + mostFields]string // on the stack: the command copies it
			args := fields(append(room[:0], "*"), &a.Events[i])
			p.bytes += len(a.Events[i].Payload)
			p.takes = append(p.takes, take{p.node.client.B().Arbitrary("XADD").Keys(s.stream).Args(args...).Build(), s, deviceOf(a.Events[i : i+1]), false, result, i})
		}
		return
	}
	keys := []string{s.stream, onceKey(s.stream, a.Once)}
	args := []string{a.Once.Fingerprint, strconv.FormatInt(windowMs, 10), strconv.Itoa(p.node.replicas), strconv.Itoa(len(a.Events))}
	for i := range a.Events {
		p.bytes += len(a.Events[i].Payload)
		entry := fields(nil, &a.Events[i])
		args = append(append(args, strconv.Itoa(len(entry))), entry...)
	}
	cmd := appendScript.bySHA(p.node.client.B(), keys, args).Pin() // the server may not know it
	p.takes = append(p.takes, take{cmd, s, deviceOf(a.Events), false, result, onceReply})
}

// submit sends the commands with whatever else is on its way to the server.
func (p *pipe) submit(alone bool) {
	p.arrange()
	if p.takes[0].shard.home.atlas.cluster {
		pin(p.cmds)
	}
	p.node.appends.submit(p, alone)
}

// finish waits for the replies and hands them out.
func (p *pipe) finish(ctx context.Context) {
	var conn link // while it waits, the pipe is the combiner's
	var lacking bool
	replies, err := p.node.appends.await(ctx, p)
	if err == nil {
		conn, lacking = p.conn, p.lacking
		p.settle(ctx, replies)
	} else {
		p.takes[0].shard.home.heed(nil, err)
	}
	for i, t := range p.takes {
		reply := rueidis.NewErrorResult(err)
		if err == nil {
			reply = replies[i]
		}
		p.node.take(reply, t)
		if lacking && reply.Error() == nil {
			clear(t.result.IDs)
			t.result.Err = cmp.Or(t.result.Err, p.node.notReplicated())
		}
		for _, id := range t.result.IDs {
			t.shard.acked.raise(id, conn)
		}
	}
}

// settle sends again what was not executed because the server didn't know the
// script (it was restarted since, or this is the first time), or because the
// shard is served by another one. It changes replies.
func (p *pipe) settle(ctx context.Context, replies []rueidis.RedisResult) {
	for from, to := range p.units() {
		unit, own := p.takes[from:to], replies[from:to]
		h := unit[0].shard.home
		send := transact(scripted(unit))
		var err error
		if all(own, noScript) {
			var again []rueidis.RedisResult
			if again, err = send(ctx, p.node, false, commands(unit)...); err == nil {
				copy(own, again)
			}
		}
		h.heed(own, err)
		if err == nil && all(own, elsewhere) {
			err = h.pursue(ctx, send, h.at.Load(), commands(unit), own)
		}
		for i := range own {
			if err != nil {
				own[i] = rueidis.NewErrorResult(err)
			}
		}
	}
}

// all reports whether a unit was refused in one way. It is unless the server
// takes no transactions; then what was executed stands already, and nothing is
// sent that would come behind it.
func all(replies []rueidis.RedisResult, refused func(error) bool) bool {
	return !slices.ContainsFunc(replies, func(r rueidis.RedisResult) bool { return !refused(r.Error()) })
}

// onceKey is where the record of an idempotency key is: in the stream's slot,
// and of a fixed length. The length before the scope keeps ("a","bc") apart
// from ("ab","c").
func onceKey(stream string, o *eventlog.Once) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(o.Scope), o.Scope, o.Key))
	return stream + ":idem:" + hex.EncodeToString(sum[:16])
}

// take puts one reply where it belongs.
func (n *node) take(r rueidis.RedisResult, t take) {
	if t.event == onceReply {
		n.takeOnce(r, t.result)
		return
	}
	id, err := n.takeID(r)
	t.result.IDs[t.event] = id
	if err != nil && t.result.Err == nil {
		t.result.Err = err
	}
}

func (n *node) takeID(r rueidis.RedisResult) (event.ID, error) {
	text, err := r.ToString()
	if err != nil {
		return event.ID{}, n.translate(err)
	}
	id, err := event.ParseID(text)
	if err != nil {
		return event.ID{}, oddReply(err)
	}
	return id, nil
}

// takeOnce reads the append script's reply: a word, the IDs, an error's text.
func (n *node) takeOnce(r rueidis.RedisResult, result *eventlog.Result) {
	parts, err := r.ToArray()
	if err != nil {
		result.Err = n.translate(err)
		return
	}
	if len(parts) != 3 {
		result.Err = oddReply(nil)
		return
	}
	word, _ := parts[0].ToString()
	if word == "conflict" {
		result.Err = eventlog.ErrConflict
		return
	}
	ids, err := texts(parts[1], len(result.IDs))
	if err != nil {
		result.Err = err
		return
	}
	for i := range ids {
		if result.IDs[i], err = event.ParseID(ids[i]); err != nil {
			result.Err = oddReply(err)
		}
	}
	if word == "failed" && result.Err == nil {
		text, _ := parts[2].ToString()
		result.Err = translateReply(text)
	}
	result.Repeated = word == "repeated"
}
