package redislog

import (
	"context"
	"strconv"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

const (
	// sweepEntries is how many entries one step removes at most, so that no
	// script blocks Redis for more than a few milliseconds.
	sweepEntries = 1000
	// sweepBytes is how much is read for one step where memory doesn't help.
	sweepBytes = 4 << 20
	// marksInWindow is how many marks a window has at most: an entry is kept
	// for up to a sixtieth of the window longer than promised.
	marksInWindow = 60
	// daysOfNotes is in how many steps notes leave: one a day.
	daysOfNotes = 7
)

// Sweep does one step: it marks where the log is now, and removes what is
// older than the window, noting for whom it was. Several gateways may do it at
// once: the script that removes does nothing if another one was faster.
func (l *Log) Sweep(ctx context.Context, shard int, recent eventlog.Recent) (eventlog.SweepReport, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.SweepReport{}, err
	}
	if err := l.reassert(ctx, s.group.guard); err != nil {
		return eventlog.SweepReport{}, err
	}
	state, due, prune, err := l.due(ctx, s)
	if err != nil {
		return eventlog.SweepReport{}, err
	}
	var report eventlog.SweepReport
	if state.Swept.Less(due) {
		step, err := l.plan(ctx, s, state, due, recent)
		if err != nil {
			return eventlog.SweepReport{}, err
		}
		if report.Removed, err = l.remove(ctx, s, state, step); err != nil {
			return eventlog.SweepReport{}, err
		}
		report.More = step.to.Less(due)
	}
	if !prune.IsZero() {
		pruned, more, err := s.prune.step(ctx, s, prune)
		if err != nil {
			return report, err
		}
		report.Pruned, report.More = pruned, report.More || more
	}
	report.Foreign = s.foreign.Swap(0)
	return report, nil
}

// due asks up to where entries are older than the window, and up to where
// notes are older than they are kept. The zero ID means: none are.
func (l *Log) due(ctx context.Context, s *shard) (state eventlog.State, due, prune event.ID, err error) {
	step := max(l.opts.SweepStep, l.opts.Window/marksInWindow)
	args := make([]string, 0, 4)
	for _, d := range []time.Duration{l.opts.Window, step, l.opts.notesKept / daysOfNotes, l.opts.notesKept} {
		args = append(args, strconv.FormatInt(d.Milliseconds(), 10))
	}
	reply, err := l.evalRecord(ctx, s.home, callSweep, dueScript, s.keys(), args)
	if err != nil {
		return state, due, prune, err
	}
	parts, err := arrays(reply, 3)
	if err != nil {
		return state, due, prune, err
	}
	if state, err = l.readState(parts[0], s); err != nil {
		return state, due, prune, err
	}
	for i, bound := range []*event.ID{&due, &prune} {
		text, err := parts[1+i].ToString()
		if err != nil {
			return state, due, prune, oddReply(err)
		}
		if text == "" {
			continue
		}
		if *bound, err = event.ParseID(text); err != nil {
			return state, due, prune, oddReply(err)
		}
	}
	return state, due, prune, nil
}

// A step is a range to remove, and what is in it.
type step struct {
	to      event.ID
	entries int
	notes   map[string]event.ID // target → highest ID in the range
}

// plan works out a step: from the caller's memory, or by reading a page.
func (l *Log) plan(ctx context.Context, s *shard, state eventlog.State, due event.ID, recent eventlog.Recent) (step, error) {
	if recent != nil {
		if p, ok := planRecent(s.index, state.Swept, due, recent); ok {
			return p, nil
		}
	}
	page, err := l.rangeOf(ctx, callSweep, s, state.Swept, due, limits{sweepBytes, sweepEntries})
	if err != nil {
		return step{}, err
	}
	p := step{to: page.Through, entries: len(page.Entries), notes: make(map[string]event.ID)}
	for i := range page.Entries {
		// Nobody can be told of an entry whose device can't be read.
		if target := page.Entries[i].Event.Target; target != "" {
			p.notes[target] = page.Entries[i].ID
		}
	}
	return p, nil
}

// planRecent halves the range until a step can take it.
func planRecent(shard int, after, upTo event.ID, recent eventlog.Recent) (step, bool) {
	for {
		notes, n, ok := recent.Notes(shard, after, upTo)
		if !ok {
			return step{}, false
		}
		middle := between(after, upTo)
		if n <= sweepEntries || middle == after {
			return step{to: upTo, entries: n, notes: notes}, true
		}
		upTo = middle
	}
}

// between is an ID halfway between two, or the lower one if they are neighbours.
func between(low, high event.ID) event.ID {
	if low.Ms == high.Ms {
		return event.ID{Ms: low.Ms, Seq: low.Seq + (high.Seq-low.Seq)/2}
	}
	if half := low.Ms + (high.Ms-low.Ms)/2; half > low.Ms {
		return event.ID{Ms: half}
	}
	if high.Seq > 0 { // neighbouring milliseconds: the later one may be full
		return event.ID{Ms: high.Ms, Seq: high.Seq / 2}
	}
	return event.ID{Ms: low.Ms, Seq: low.Seq + (^uint64(0)-low.Seq)/2}
}

// remove runs the script that notes and removes a step's range.
func (l *Log) remove(ctx context.Context, s *shard, state eventlog.State, p step) (int, error) {
	next := ""
	if p.to != event.MaxID {
		next = p.to.Next().String()
	}
	args := make([]string, 0, 5+2*len(p.notes))
	args = append(args, state.Founded.String(), state.Swept.String(), p.to.String(), next, strconv.Itoa(p.entries))
	for target, id := range p.notes {
		args = append(args, target, id.String())
	}
	reply, err := l.evalRecord(ctx, s.home, callSweep, removeScript, s.keys(), args)
	if err != nil {
		return 0, err
	}
	counts, err := reply.AsIntSlice()
	if err != nil || len(counts) != 2 {
		return 0, oddReply(err)
	}
	s.foreign.Add(uint64(counts[1]))
	return int(counts[0]), nil
}
