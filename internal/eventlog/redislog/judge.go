package redislog

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

const (
	// A script that judges is kept to about a millisecond: whoever publishes
	// waits behind it.
	judgeQuestions = 200
	judgeTargets   = 2000
	// inspectShards is how many shards one script looks at, for the same reason.
	inspectShards = 16
)

// Judge answers each question by one atomic look at the primary. With more
// questions than fit into one look, State is of the last one.
func (l *Log) Judge(ctx context.Context, shard int, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	s, err := l.shard(shard)
	if err != nil {
		return nil, eventlog.State{}, err
	}
	reasons := make([]event.Reason, 0, len(questions))
	var state eventlog.State
	for first := true; first || len(questions) > 0; first = false {
		n := looksFor(questions)
		some, st, err := l.judge(ctx, s, questions[:n])
		if err != nil {
			return nil, eventlog.State{}, err
		}
		reasons, state, questions = append(reasons, some...), st, questions[n:]
	}
	return reasons, state, nil
}

// looksFor is how many of the questions one script answers: one at least.
func looksFor(questions []eventlog.Question) int {
	targets := 0
	for i := range questions {
		targets += len(questions[i].Targets)
		if i == judgeQuestions || (i > 0 && targets > judgeTargets) {
			return i
		}
	}
	return len(questions)
}

func (l *Log) judge(ctx context.Context, s *shard, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	args := []string{strconv.Itoa(len(questions))}
	for i := range questions {
		args = append(args, questions[i].Cursor.String())
	}
	places := make(map[string]int) // target → place among the notes
	for i := range questions {
		for _, target := range questions[i].Targets {
			if _, ok := places[target]; !ok {
				places[target] = len(places)
				args = append(args, target)
			}
		}
	}
	reply, err := l.evalRecord(ctx, s.home, callJudge, judgeScript, s.keys(), args)
	if err != nil {
		return nil, eventlog.State{}, err
	}
	parts, err := arrays(reply, 3)
	if err != nil {
		return nil, eventlog.State{}, err
	}
	state, err := l.readState(parts[0], s)
	if err != nil {
		return nil, eventlog.State{}, err
	}
	held, err := parts[1].AsIntSlice()
	if err != nil || len(held) != len(questions) {
		return nil, eventlog.State{}, oddReply(err)
	}
	notes, err := readNotes(parts[2], len(places))
	if err != nil {
		return nil, eventlog.State{}, err
	}
	reasons := make([]event.Reason, len(questions))
	for i := range questions {
		var noted event.ID
		for _, target := range questions[i].Targets {
			noted = event.Max(noted, notes[places[target]])
		}
		reasons[i] = state.Judge(questions[i].Cursor, held[i] == 1, noted)
	}
	return reasons, state, nil
}

// readNotes reads one ID for each target; no note is the zero ID.
func readNotes(m rueidis.RedisMessage, n int) ([]event.ID, error) {
	ids, err := texts(m, n)
	if err != nil {
		return nil, err
	}
	out := make([]event.ID, n)
	for i := range ids {
		if ids[i] == "" {
			continue
		}
		if out[i], err = event.ParseID(ids[i]); err != nil {
			return nil, oddReply(err)
		}
	}
	return out, nil
}

// Inspect asks how each shard of the group stands to a position.
func (l *Log) Inspect(ctx context.Context, group int, positions []event.ID) ([]eventlog.Inspection, error) {
	if group < 0 || group >= len(l.groups) || len(positions) != len(l.groups[group].shards) {
		return nil, fmt.Errorf("inspection of group %d at %d positions: no such group, or not one position for each of its shards", group, len(positions))
	}
	g := l.groups[group]
	if err := l.reassert(ctx, g.guard); err != nil {
		return nil, err
	}
	out := make([]eventlog.Inspection, 0, len(positions))
	for first := 0; first < len(positions); first += inspectShards {
		last := min(first+inspectShards, len(positions))
		some, err := l.inspect(ctx, g.home, g.shards[first:last], positions[first:last])
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	g.tail.standin.watched(positions, out)
	l.watchServer(ctx, g.home.node())
	return out, nil
}

func (l *Log) inspect(ctx context.Context, h *home, shards []int, positions []event.ID) ([]eventlog.Inspection, error) {
	var keys, args []string
	acked := make([]event.ID, len(shards))
	for i, shard := range shards {
		s := &l.byShard[shard]
		keys = append(keys, s.keys()...)
		beyond := ""
		if acked[i] = s.acked.ask(positions[i]); !acked[i].IsZero() {
			beyond = acked[i].String()
		}
		args = append(args, positions[i].String(), beyond)
	}
	reply, err := l.evalRecord(ctx, h, callInspect, inspectScript, keys, args)
	if err != nil {
		return nil, err
	}
	answers, err := arrays(reply, len(shards))
	if err != nil {
		return nil, err
	}
	out := make([]eventlog.Inspection, len(shards))
	for i := range answers {
		parts, err := arrays(answers[i], 4)
		if err != nil {
			return nil, err
		}
		if out[i].State, err = l.readState(parts[0], &l.byShard[shards[i]]); err != nil {
			return nil, err
		}
		var there [2]int64
		for k := range there {
			if there[k], err = parts[1+k].AsInt64(); err != nil {
				return nil, oddReply(err)
			}
		}
		if out[i].Added, err = readCount(parts[3]); err != nil {
			return nil, err
		}
		held, s := there[0] == 1, &l.byShard[shards[i]]
		if !acked[i].IsZero() && there[1] == 0 && out[i].State.Swept.Less(acked[i]) {
			if out[i].State, err = l.missing(ctx, s, out[i].State, acked[i]); err != nil {
				return nil, err
			}
		} else {
			s.acked.found(acked[i])
		}
		state := out[i].State
		out[i].Reason = state.Judge(positions[i], held, event.ID{})
		if gone := !held && lost(state, positions[i]); gone && (out[i].Reason == event.LogUncertain || out[i].Reason == event.LogRewound) {
			out[i].Reason, out[i].Lost = event.LogRewound, true
		}
	}
	return out, nil
}

// missing is the state of a shard that lacks an entry which this gateway has
// acknowledged, once that is noted. Where somebody has removed entries without
// notes, it may be one of them.
func (l *Log) missing(ctx context.Context, s *shard, state eventlog.State, acked event.ID) (eventlog.State, error) {
	how := ""
	if state.Judge(acked, false, event.ID{}) == event.WindowExpired {
		how = "removed"
	}
	state, err := l.suspect(ctx, s, acked, how)
	if err == nil {
		s.acked.forget(acked)
	}
	return state, err
}

// lost reports whether a position that the log doesn't hold is evidence of a
// loss. A reader's position is an entry that it has read, or a head that it
// was given; an entry that wasn't swept should be there.
func lost(s eventlog.State, position event.ID) bool {
	given := position == s.Founded || slices.ContainsFunc(s.Breaks, func(b eventlog.Break) bool { return b.Boundary == position })
	return s.Swept.Less(position) && !given
}

// Suspect records for every gateway that a position which this one had reached
// is gone.
func (l *Log) Suspect(ctx context.Context, shard int, reach event.ID) (eventlog.State, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.State{}, err
	}
	return l.suspect(ctx, s, reach, "")
}

func (l *Log) suspect(ctx context.Context, s *shard, reach event.ID, how string) (eventlog.State, error) {
	reply, err := l.evalRecord(ctx, s.home, callSuspect, suspectScript, s.keys(), []string{reach.String(), how})
	if err != nil {
		return eventlog.State{}, err
	}
	return l.readState(reply, s)
}

// arrays reads a reply of n parts.
func arrays(m rueidis.RedisMessage, n int) ([]rueidis.RedisMessage, error) {
	parts, err := m.ToArray()
	if err != nil || len(parts) != n {
		return nil, oddReply(err)
	}
	return parts, nil
}
