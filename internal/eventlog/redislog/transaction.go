package redislog

import (
	"context"
	"iter"
	"slices"

	"downlink/internal/event"

	"github.com/redis/rueidis"
)

// If one call appends more than one event for a device, all that it appends to the
// device's shard goes out as a transaction. A server that changes its mind in the
// middle of a pipeline, because it takes over, has loaded its data or has memory
// again, would refuse the first ones and store the later ones, and what the
// publisher repeats would come behind them. In a transaction whatever is refused
// has all of it refused. None has the streams of two shards: a slot that is split
// between two servers would hold it up.

// units are the stretches of takes that are stored, or refused, as one.
func (p *pipe) units() iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from, to := 0, 0; from < len(p.takes); from = to {
			for to = from + 1; to < len(p.takes) && p.takes[to].joined; {
				to++
			}
			if !yield(from, to) {
				return
			}
		}
	}
}

// arrange makes the pipeline of what was added.
func (p *pipe) arrange() {
	if len(p.takes) == 1 {
		p.cmds = append(p.oneCmd[:0], p.takes[0].cmd)
		return
	}
	p.takes = byShard(p.takes)
	for from := 0; from < len(p.takes); {
		to := from + 1
		for to < len(p.takes) && p.takes[to].shard == p.takes[from].shard {
			to++
		}
		join(p.takes[from:to])
		from = to
	}
	p.cmds = make([]rueidis.Completed, 0, len(p.takes)+len(p.takes)/4)
	for from, to := range p.units() {
		if unit := p.takes[from:to]; len(unit) == 1 {
			p.cmds = append(p.cmds, unit[0].cmd)
		} else {
			p.cmds = enclose(p.cmds, p.node.client.B(), mixed(unit), commands(unit)...)
		}
	}
}

// byShard puts the takes of a shard together, and leaves their order as it is. It
// sorts numbers: takes are large.
func byShard(takes []take) []take {
	order := make([]uint64, len(takes))
	for i := range takes {
		order[i] = uint64(takes[i].shard.index)<<32 | uint64(i) //nolint:gosec // neither is negative
	}
	if slices.IsSorted(order) {
		return takes
	}
	slices.Sort(order)
	out := make([]take, len(takes))
	for i, k := range order {
		out[i] = takes[uint32(k)] //nolint:gosec // the lower half
	}
	return out
}

// mostCompared is how many of a shard are looked at for a device that comes
// twice; more of them are taken to have one.
const mostCompared = 16

// join makes one unit of a shard's takes, unless they are for different devices.
func join(takes []take) {
	apart := len(takes) <= mostCompared
	for i := 0; apart && i < len(takes); i++ {
		device := takes[i].device
		apart = device != "" && !slices.ContainsFunc(takes[:i], func(t take) bool { return t.device == device })
	}
	for i := 1; i < len(takes); i++ {
		takes[i].joined = !apart
	}
}

// deviceOf is the device that all of the events are for, or "".
func deviceOf(events []event.Event) string {
	target := events[0].Target
	if event.ToAll(target) || slices.ContainsFunc(events[1:], func(e event.Event) bool { return e.Target != target }) {
		return ""
	}
	return target
}

// unpack gives each take the reply of its own command.
func (p *pipe) unpack() []rueidis.RedisResult {
	if len(p.cmds) == len(p.takes) {
		return p.replies
	}
	out, rest := make([]rueidis.RedisResult, 0, len(p.takes)), p.replies
	for from, to := range p.units() {
		n := 1
		if to-from > 1 {
			n = extent(mixed(p.takes[from:to]), to-from)
		}
		out = p.node.disclose(out, rest[:n], to-from)
		rest = rest[n:]
	}
	return out
}

func commands(unit []take) []rueidis.Completed {
	cmds := make([]rueidis.Completed, len(unit))
	for i := range unit {
		cmds[i] = unit[i].cmd
	}
	return cmds
}

// scripted reports whether the script is among a unit's commands.
func scripted(unit []take) bool {
	return slices.ContainsFunc(unit, func(t take) bool { return t.event == onceReply })
}

// mixed reports whether a unit has other commands besides. They would be
// executed where the server doesn't know the script.
func mixed(unit []take) bool {
	return scripted(unit) && slices.ContainsFunc(unit, func(t take) bool { return t.event != onceReply })
}

// enclose adds a unit's commands to a pipeline, as a transaction unless there
// is one only; with load the server learns the script in the same step.
func enclose(dst []rueidis.Completed, b rueidis.Builder, load bool, cmds ...rueidis.Completed) []rueidis.Completed {
	if extent(load, len(cmds)) == 1 {
		return append(dst, cmds[0])
	}
	dst = append(dst, b.Multi().Build())
	if load {
		dst = append(dst, appendScript.load(b))
	}
	return append(append(dst, cmds...), b.Exec().Build())
}

// extent is how long n commands are when they are enclosed.
func extent(load bool, n int) int {
	switch {
	case load:
		return n + 3
	case n > 1:
		return n + 2
	}
	return 1
}

// disclose adds, for each of the n commands that were enclosed, its own reply.
func (n *node) disclose(dst, replies []rueidis.RedisResult, commands int) []rueidis.RedisResult {
	if len(replies) == 1 {
		return append(dst, replies[0])
	}
	last := len(replies) - 1
	queued, done := replies[1:last], replies[last]
	extra := len(queued) - commands
	if err := replies[0].Error(); err != nil { // each was executed by itself
		n.lacksTransactions(err)
		return append(dst, queued[extra:]...)
	}
	refusal := done
	values, err := done.ToArray()
	if i := slices.IndexFunc(queued, func(r rueidis.RedisResult) bool { return r.Error() != nil }); i >= 0 {
		err, refusal = queued[i].Error(), queued[i] // it says why
	} else if err == nil && len(values) != len(queued) {
		err = oddReply(nil)
		refusal = rueidis.NewErrorResult(err)
	}
	for i := range commands {
		if err != nil {
			dst = append(dst, refusal)
			continue
		}
		dst = append(dst, rueidis.NewResult(values[extra+i], nil))
	}
	return dst
}

// lacksTransactions says it once for each server.
func (n *node) lacksTransactions(err error) {
	if _, ok := rueidis.IsRedisErr(err); !ok {
		return
	}
	n.complained.Do(func() {
		n.logger.Warn("Redis accepts no MULTI: while a server takes over, starts or is full, a batch's events may be stored out of their order; allow the user +multi and +exec",
			"server", n.addr, "error", translateReply(err.Error()))
	})
}

// transact sends the commands of one unit again. The server may be another one,
// or another process, than refused them: with load it learns the script.
func transact(load bool) sender {
	return func(ctx context.Context, n *node, ask bool, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
		b := n.client.B()
		lot := make([]rueidis.Completed, 0, 1+extent(load, len(cmds)))
		if ask {
			lot = append(lot, b.Arbitrary("ASKING").Build()) // it lasts as long as the transaction
		}
		replies, err := n.store(ctx, callAppend, enclose(lot, b, load, cmds...)...)
		if err != nil {
			return nil, err
		}
		return n.disclose(nil, replies[len(lot):], len(cmds)), nil
	}
}
