package tail

import (
	"context"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// stuckRounds is how many rounds in a row a head may move without us.
const stuckRounds = 3

// watch asks the log, over another connection than the reader's, whether the
// positions still stand: a reader that is blocked at X is never woken by
// entries below X.
func (r *reader) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff.Jitter(r.opts.Watch, 0.3)):
		}
		if err := r.round(ctx); final(err) {
			return err
		}
	}
}

// round is one look of the watchdog. If it fails, the reader asks the same
// before it dispatches anything more, and says what stands in the way.
func (r *reader) round(ctx context.Context) error {
	asked, told := r.snapshot()
	found, err := r.source.Inspect(ctx, r.group, asked)
	if err != nil {
		r.doubtful()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.reportLocked()
	r.meter.look(found)
	for i := range found {
		t := &r.tracks[i]
		if t.told != told[i] { // what the answer says of the position of before, everybody was told
			t.idle = 0
			continue
		}
		if t.pos != asked[i] && found[i].Reason != event.LogRewound && found[i].State.Founded == t.founded &&
			t.crossed(found[i].State) == "" {
			t.idle = 0 // moved on meanwhile; its turn comes again
			continue
		}
		if err := r.settleLocked(ctx, i, asked[i], found[i]); err != nil {
			r.doubt = true
			return err
		}
	}
	return nil
}

// snapshot is where the reader stands, and at which heads everybody was last told.
func (r *reader) snapshot() (positions, told []event.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told = make([]event.ID, len(r.tracks))
	for i, t := range r.tracks {
		told[i] = t.told
	}
	return r.positionsLocked(), told
}

// inspectLocked is a look on the reader's own behalf, before it dispatches.
func (r *reader) inspectLocked(ctx context.Context) error {
	positions := r.positionsLocked()
	found, err := r.source.Inspect(ctx, r.group, positions)
	if err != nil {
		return err
	}
	defer r.reportLocked()
	for i := range found {
		if err := r.settleLocked(ctx, i, positions[i], found[i]); err != nil {
			return err
		}
	}
	return nil
}

// settleLocked acts on what an inspection says of the position pos.
func (r *reader) settleLocked(ctx context.Context, i int, pos event.ID, found eventlog.Inspection) error {
	t, state, reason := &r.tracks[i], found.State, found.Reason
	another := state.Founded != t.founded // another log stands where ours stood
	if another {
		reason = event.LogRewound
	}
	if reason == "" {
		reason = t.crossed(state)
	}
	switch {
	case another, found.Lost && pos != t.told:
		return r.reportLossLocked(ctx, i, pos)
	case found.Reason != "" && pos == state.Head && pos == t.told:
		// Nothing has come since everybody was told, here.
	case reason != "":
		r.tellLocked(i, pos, t.onward(pos, state.Head), reason, state)
		return nil
	case pos.Less(state.Swept):
		at, err := r.to.Overtaken(ctx, r.shards[i])
		if err != nil {
			return err
		}
		t.pos = at
		r.meter.jump(i, at)
		r.opts.Orders.Doubt(r.shards[i])
		r.opts.Metrics.Overtaken.Inc()
		r.restartLocked()
	case pos.Less(state.Head):
		return r.lateLocked(ctx, i, state)
	}
	t.idle = 0
	t.looked = event.Max(t.looked, pos)
	r.stuckLocked(i, false)
	return nil
}

// crossed is why entries may be missing that were never read: the position has
// passed a break that wasn't there at the last look. Another gateway had read
// or acknowledged what was lost, and said so when this one was past it already;
// or someone removed entries before they were read.
func (t *track) crossed(state eventlog.State) (reason event.Reason) {
	for _, b := range state.Breaks {
		if !b.Gap && t.looked.Less(b.Boundary) {
			reason = b.Reason
		}
	}
	return reason
}

// onward is where delivery goes on when everybody at pos is told: at the head;
// or where a read has got since the question was asked, whose entries aren't
// sent again. If that is of another branch, the next round finds it.
func (t *track) onward(pos, head event.ID) event.ID {
	if t.pos == pos {
		return head
	}
	return event.Max(head, t.pos)
}

// reportLossLocked tells a shard's sessions that the log went back, and goes on
// from the head. What we know is recorded for the others: a cursor of the lost
// branch may arrive at any of them, later. It is even if a break puts the
// position in doubt already: a server that was replaced may have gone on storing
// after that was told. A position that is in doubt only by what is recorded, or
// that is where everybody was told, is nothing to record: two gateways would
// tell each other for ever.
func (r *reader) reportLossLocked(ctx context.Context, i int, pos event.ID) error {
	state, err := r.source.Suspect(ctx, r.shards[i], pos)
	if err != nil {
		return err
	}
	r.tellLocked(i, pos, state.Head, event.LogRewound, state)
	return nil
}

// tellLocked tells a shard's sessions, and goes on after at. A break that was
// made since state was read isn't passed over by that: looked is what was seen.
func (r *reader) tellLocked(i int, pos, at event.ID, reason event.Reason, state eventlog.State) {
	r.resets = append(r.resets, reset{r.shards[i], pos, at, reason})
	r.stuckLocked(i, false)
	r.tracks[i] = track{pos: at, founded: state.Founded, fresh: time.Now(), told: at, looked: state.Head}
	r.meter.jump(i, at)
	r.to.Reset(r.shards[i], at, reason)
	r.opts.Orders.Doubt(r.shards[i])
	r.opts.Metrics.reset(reason)
	r.restartLocked()
}

// A reset is what is logged of one.
type reset struct {
	shard          int
	position, head event.ID
	reason         event.Reason
}

// reportLocked logs what was reset, one line for each reason: a flush resets
// every shard.
func (r *reader) reportLocked() {
	byReason := make(map[event.Reason][]reset)
	for _, one := range r.resets {
		byReason[one.reason] = append(byReason[one.reason], one)
	}
	r.resets = nil
	for reason, all := range byReason {
		r.log.Warn("the log can't prove what came after the position; every device of these shards is told",
			"reason", reason, "shards", len(all), "first", all[0].shard, "position", all[0].position, "head", all[0].head)
	}
}

// lateLocked counts rounds in which a shard's head was ahead of a position
// that didn't move: first the read is begun anew, over a new connection; and
// if nothing is there to be read (somebody removed the newest entry by hand),
// the position moves on, and the devices are told.
func (r *reader) lateLocked(ctx context.Context, i int, state eventlog.State) error {
	t := &r.tracks[i]
	if t.pos != t.behind { // it moves, and the head was ahead again just now
		t.behind, t.idle = t.pos, 0
	}
	if t.idle++; t.idle < stuckRounds {
		return nil
	}
	page, err := r.source.Range(ctx, r.shards[i], t.pos, state.Head, 1)
	if err != nil {
		return err
	}
	if len(page.Entries) == 0 {
		r.tellLocked(i, t.pos, state.Head, event.WindowExpired, state)
		return nil
	}
	r.log.Warn("the log moves and the tail doesn't; reading again from the position",
		"shard", r.shards[i], "position", t.pos, "head", state.Head)
	r.opts.Metrics.Restarts.Inc()
	t.idle = 0
	r.stuckLocked(i, true)
	r.restartLocked()
	return nil
}

// restartLocked ends the read in flight, which was asked with old positions.
func (r *reader) restartLocked() {
	r.turn++
	r.cancel()
}
