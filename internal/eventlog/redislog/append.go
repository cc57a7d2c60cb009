package redislog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// Append stores a batch in one pipeline: an XADD for each event, or one script
// for an idempotent Append. IDs come from Redis's clock, and nothing is
// trimmed. It repeats nothing by itself: an answer that got lost may have
// been a success.
func (l *Log) Append(ctx context.Context, batch []eventlog.Append) []eventlog.Result {
	results := make([]eventlog.Result, len(batch))
	pipes := make(map[*node]*pipe)
	for i := range batch {
		a := &batch[i]
		results[i].IDs = make([]event.ID, len(a.Events))
		s, err := l.shard(a.Shard)
		if err == nil {
			err = l.refused()
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		p := pipes[s.node]
		if p == nil {
			p = &pipe{node: s.node}
			pipes[s.node] = p
		}
		p.add(s, a, &results[i], l.opts.Window.Milliseconds())
	}
	for _, p := range pipes {
		p.send(ctx)
	}
	return results
}

// A pipe is the commands of one Append call for one server.
type pipe struct {
	node  *node
	cmds  []rueidis.Completed
	takes []func(rueidis.RedisResult) // what to do with each reply
	once  []onceCall
}

// A onceCall is the script of an idempotent Append, in case the server doesn't
// know the script yet.
type onceCall struct {
	at         int // index of its command
	keys, args []string
}

func (p *pipe) add(s *shard, a *eventlog.Append, result *eventlog.Result, windowMs int64) {
	if a.Once == nil {
		for i := range a.Events {
			p.xadd(s, &a.Events[i], &result.IDs[i], result)
		}
		return
	}
	keys := []string{s.stream, onceKey(s.stream, a.Once)}
	args := []string{a.Once.Fingerprint, strconv.FormatInt(windowMs, 10), strconv.Itoa(len(a.Events))}
	for i := range a.Events {
		entry := fields(nil, &a.Events[i])
		args = append(append(args, strconv.Itoa(len(entry))), entry...)
	}
	p.once = append(p.once, onceCall{at: len(p.cmds), keys: keys, args: args})
	p.cmds = append(p.cmds, appendScript.bySHA(p.node.client.B(), keys, args))
	p.takes = append(p.takes, func(r rueidis.RedisResult) { p.node.takeOnce(r, result) })
}

func (p *pipe) xadd(s *shard, e *event.Event, id *event.ID, result *eventlog.Result) {
	args := fields([]string{"*"}, e)
	p.cmds = append(p.cmds, p.node.client.B().Arbitrary("XADD").Keys(s.stream).Args(args...).Build())
	p.takes = append(p.takes, func(r rueidis.RedisResult) {
		got, err := p.node.takeID(r)
		*id = got
		if err != nil && result.Err == nil {
			result.Err = err
		}
	})
}

// send runs the pipeline and hands out the replies.
func (p *pipe) send(ctx context.Context) {
	cmds := p.cmds
	first := 0
	if len(p.once) > 0 && len(cmds) > 1 {
		// Taught afterwards, an idempotent Append would be stored behind what
		// follows it here, out of the batch's order.
		cmds = append([]rueidis.Completed{appendScript.load(p.node.client.B())}, cmds...)
		first = 1
	}
	replies, err := p.node.doMulti(ctx, callAppend, cmds...)
	if err == nil {
		replies = p.teach(ctx, replies[first:])
	}
	for i, take := range p.takes {
		if err != nil {
			take(rueidis.NewErrorResult(err))
			continue
		}
		take(replies[i])
	}
}

// teach sends the whole script where the server didn't know it, and so did
// nothing: it was restarted since, or this is the first time.
func (p *pipe) teach(ctx context.Context, replies []rueidis.RedisResult) []rueidis.RedisResult {
	var cmds []rueidis.Completed
	var at []int
	for _, o := range p.once {
		if noScript(replies[o.at].Error()) {
			cmds = append(cmds, appendScript.whole(p.node.client.B(), o.keys, o.args))
			at = append(at, o.at)
		}
	}
	if len(cmds) == 0 {
		return replies
	}
	again, err := p.node.doMulti(ctx, callAppend, cmds...)
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
