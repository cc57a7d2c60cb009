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
// for an idempotent Append. IDs come from Redis's clock, and nothing is
// trimmed. It repeats nothing by itself: an answer that got lost may have
// been a success.
func (l *Log) Append(ctx context.Context, batch []eventlog.Append) []eventlog.Result {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.opts.CallTimeout)
		defer cancel()
	}
	results := eventlog.NewResults(batch)
	pipes := make([]*pipe, 0, 1) // one for each server, of which there are few
	for i := range batch {
		s, err := l.shard(batch[i].Shard)
		if err == nil {
			err = l.refused()
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		n := s.home.node()
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

// A pipe is the commands of one Append call for one server.
type pipe struct {
	// Owned by the caller, lent to the combiner from submit until done.
	node  *node
	ctx   context.Context // has a deadline
	cmds  []rueidis.Completed
	takes []take // one for each command from first on
	once  []onceCall
	first int
	bytes int       // of the events, about
	began time.Time // when it was submitted

	// Room for the usual case.
	oneCmd  [1]rueidis.Completed
	oneTake [1]take

	// Owned by the combiner until done is closed; nil if the caller was it.
	done    chan struct{}
	replies []rueidis.RedisResult
	conn    link // over which they came
	lacking bool // the replicas don't have it
	err     error
}

// A take says where a reply belongs: to one event of a result, or (onceReply)
// to all of it.
type take struct {
	shard  *shard
	result *eventlog.Result
	event  int
}

const onceReply = -1

// mostFields is how many words the fields of an entry are at most.
const mostFields = 12

// A onceCall is the script of an idempotent Append, in case the server doesn't
// know the script yet.
type onceCall struct {
	at         int // index of its take
	keys, args []string
}

func newPipe(ctx context.Context, n *node, appends int) *pipe {
	p := &pipe{node: n, ctx: ctx}
	p.cmds, p.takes = p.oneCmd[:0], p.oneTake[:0]
	if appends > 1 {
		p.cmds, p.takes = make([]rueidis.Completed, 0, appends), make([]take, 0, appends)
	}
	return p
}

func (p *pipe) add(s *shard, a *eventlog.Append, result *eventlog.Result, windowMs int64) {
	if a.Once == nil {
		for i := range a.Events {
			var room [1 + mostFields]string // on the stack: the command copies it
			args := fields(append(room[:0], "*"), &a.Events[i])
			p.bytes += len(a.Events[i].Payload)
			p.cmds = append(p.cmds, p.node.client.B().Arbitrary("XADD").Keys(s.stream).Args(args...).Build())
			p.takes = append(p.takes, take{s, result, i})
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
	p.once = append(p.once, onceCall{at: len(p.takes), keys: keys, args: args})
	p.cmds = append(p.cmds, appendScript.bySHA(p.node.client.B(), keys, args))
	p.takes = append(p.takes, take{s, result, onceReply})
}

// submit sends the commands with whatever else is on its way to the server.
func (p *pipe) submit(alone bool) {
	if len(p.once) > 0 && len(p.cmds) > 1 {
		// Taught afterwards, an idempotent Append would be stored behind what
		// follows it here, out of the batch's order.
		p.cmds = slices.Insert(p.cmds, 0, appendScript.load(p.node.client.B()))
		p.first = 1
	}
	if p.takes[0].shard.home.atlas.cluster {
		pin(p.cmds)
	}
	p.node.appends.submit(p, alone)
}

// finish waits for the replies and hands them out.
func (p *pipe) finish(ctx context.Context) {
	var conn link // while it waits, the pipe is the combiner's
	replies, err := p.node.appends.await(ctx, p)
	if err == nil {
		conn = p.conn
		replies = p.teach(ctx, replies[p.first:])
	}
	replies, err = p.pursue(ctx, replies, err)
	for i, t := range p.takes {
		reply := rueidis.NewErrorResult(err)
		if err == nil {
			reply = replies[i]
		}
		p.node.take(reply, t)
		if p.lacking && reply.Error() == nil {
			clear(t.result.IDs)
			t.result.Err = cmp.Or(t.result.Err, notReplicated(p.node.replicas))
		}
		for _, id := range t.result.IDs {
			t.shard.acked.raise(id, conn)
		}
	}
}

// pursue sends again what wasn't executed because its shard is served by
// another server, group by group. Whatever of a group was executed behind it
// stands already: then it isn't sent, or it would come out of the batch's order.
func (p *pipe) pursue(ctx context.Context, replies []rueidis.RedisResult, err error) ([]rueidis.RedisResult, error) {
	for i := range p.takes {
		h := p.takes[i].shard.home
		if err != nil || h.atlas.locator == nil {
			h.heed(nil, err)
			return replies, err
		}
		h.heed(replies[i:i+1], nil)
		if _, elsewhere := directionOf(replies[i].Error()); !elsewhere {
			continue
		}
		var cmds []rueidis.Completed
		var at []int
		for k := i; k < len(p.takes); k++ {
			if p.takes[k].shard.home != h {
				continue
			}
			if _, elsewhere := directionOf(replies[k].Error()); !elsewhere {
				at = nil
				break
			}
			cmds, at = append(cmds, p.cmds[p.first+k]), append(at, k)
		}
		if len(at) == 0 {
			continue
		}
		p.repeat(ctx, h, cmds, at, replies)
	}
	return replies, err
}

// repeat sends the commands of one home again.
func (p *pipe) repeat(ctx context.Context, h *home, cmds []rueidis.Completed, at []int, replies []rueidis.RedisResult) {
	results := make([]rueidis.RedisResult, len(at))
	for i, k := range at {
		results[i] = replies[k]
	}
	err := h.pursue(ctx, storing(callAppend), h.at.Load(), cmds, results)
	for i, k := range at {
		replies[k] = results[i]
		if err != nil {
			replies[k] = rueidis.NewErrorResult(err)
		}
	}
}

// teach sends the whole script where the server didn't know it, and so did
// nothing: it was restarted since, or this is the first time. Behind an append
// that failed nothing is sent, or it would come out of the batch's order: a
// server that was loading its data has refused the first ones, and the script.
func (p *pipe) teach(ctx context.Context, replies []rueidis.RedisResult) []rueidis.RedisResult {
	var cmds []rueidis.Completed
	var at []int
	failed := slices.IndexFunc(replies, func(r rueidis.RedisResult) bool { return r.Error() != nil && !noScript(r.Error()) })
	for _, o := range p.once {
		switch {
		case !noScript(replies[o.at].Error()):
		case failed >= 0 && failed < o.at:
			replies[o.at] = replies[failed]
		default:
			cmds = append(cmds, appendScript.whole(p.node.client.B(), o.keys, o.args))
			at = append(at, o.at)
		}
	}
	if len(cmds) == 0 {
		return replies
	}
	again, err := p.node.store(ctx, callAppend, cmds...)
	for i, where := range at {
		if err != nil {
			replies[where] = rueidis.NewErrorResult(err)
			continue
		}
		replies[where] = again[i]
	}
	return replies
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
