package tail

import (
	"context"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// glances bring the reader forward while it rests: what this process appends
// is read along by the append's own round trip, so it is here at once, and
// nobody has to be woken for it. They are never needed: one that doesn't join
// on, or comes while anything is in doubt, is dropped, and the next read brings
// the same.
type glances struct {
	came chan glanced
	anew atomic.Bool // one came over another connection than those before

	// Guarded by the reader's mu.
	resting bool   // no read is under way: whoever appends shall read along
	turn    uint64 // of the positions: goes on with each read and each reset
	dropped []int  // places of glances that a read has overtaken

	// Of Glance alone, which is called once at a time.
	owed []int  // places of shards that were appended to and not glanced at since
	owes []bool // by place, whether it is in owed
}

// glanced is a glance with what it found.
type glanced struct {
	eventlog.Glance
	came time.Time
	read func() ([]eventlog.Batch, error)
}

// waitingGlances is how many may wait for being dispatched. There are no more
// than one, unless the reader asks the log while it holds its positions.
const waitingGlances = 8

const (
	// often is how many entries a second make glances a waste: a read brings
	// many within a millisecond or two, and costs each less.
	often = 8000
	// soFew is at how many shards what was found is dispatched by whoever
	// appended.
	soFew = 4
)

func newGlances(shards int) glances {
	return glances{came: make(chan glanced, waitingGlances), owes: make([]bool, shards)}
}

var _ eventlog.Follower = (*reader)(nil)

// Glance says what an append is to read along: the shards that it is for, or
// all of them if a read is due anyhow.
func (r *reader) Glance(appended []int) eventlog.Glance {
	r.owe(appended)
	if !r.mu.TryLock() {
		return eventlog.Glance{} // something is being dispatched; the next append will do
	}
	defer r.mu.Unlock()
	r.owe(r.dropped)
	r.dropped = r.dropped[:0]
	var g eventlog.Glance
	idle := r.pace.wait == 0
	overdue := r.pace.left(time.Now()) < -r.pace.most // the process was frozen: nobody knows how much has come
	switch {
	case r.doubt || idle || r.pace.rate >= often: // the next read is soon enough
	case r.resting && overdue:
	case !r.resting:
		return g // the read that is under way may miss this one, and then comes a rest
	default:
		g = r.glanceLocked()
	}
	for _, i := range r.owed {
		r.owes[i] = false
	}
	r.owed = r.owed[:0]
	return g
}

// owe notes places for the next glance.
func (r *reader) owe(places []int) {
	for _, i := range places {
		if !r.owes[i] {
			r.owes[i] = true
			r.owed = append(r.owed, i)
		}
	}
}

func (r *reader) glanceLocked() eventlog.Glance {
	g := eventlog.Glance{Asked: time.Now(), Turn: r.turn}
	if r.pace.soon(g.Asked) {
		g.Places = make([]int, len(r.tracks))
		for i := range g.Places {
			g.Places[i] = i
		}
		g.After = r.positionsLocked()
		return g
	}
	g.Places, g.After = make([]int, len(r.owed)), make([]event.ID, len(r.owed))
	for at, i := range r.owed {
		g.Places[at], g.After[at] = i, r.tracks[i].pos
	}
	return g
}

// Glanced takes what was read along. A little is dispatched at once, in the
// time that it would take to wake somebody else for it.
func (r *reader) Glanced(g eventlog.Glance, anew bool, read func() ([]eventlog.Batch, error)) {
	if anew {
		r.anew.Store(true)
	}
	found := glanced{g, time.Now(), read}
	if len(g.Places) <= soFew && r.mu.TryLock() {
		defer r.mu.Unlock()
		r.advanceLocked(found)
		return
	}
	select {
	case r.came <- found:
	default: // the reader brings it
	}
}

// advance dispatches the rest of what was read along, until ctx ends.
func (r *reader) advance(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case found := <-r.came:
			r.mu.Lock()
			r.advanceLocked(found)
			r.mu.Unlock()
		}
	}
}

func (r *reader) advanceLocked(g glanced) {
	if r.anew.Swap(false) {
		r.doubt = true // the reader asks, when it reads next
		r.missed()
	}
	if r.doubt || g.Turn != r.turn {
		if len(g.Places) <= soFew {
			r.dropped = append(r.dropped, g.Places...)
		}
		return
	}
	batches, err := g.read()
	if err != nil || r.staleLocked(batches) || asksToLook(batches) {
		return // the reader finds the same, and sees to it
	}
	for _, i := range g.Places {
		r.tracks[i].drained = true // unless a batch says otherwise
	}
	entries := 0
	for _, b := range batches {
		i := r.places[b.Shard]
		r.tracks[i].drained = b.Drained
		if b.Entries = beyond(b.Entries, r.tracks[i].pos); len(b.Entries) > 0 {
			r.handLocked(i, b)
			entries += len(b.Entries)
		}
	}
	r.opts.Metrics.Glanced.Add(float64(entries))
	for _, i := range g.Places {
		if r.tracks[i].drained {
			r.tracks[i].fresh = g.Asked
		}
	}
	if len(g.Places) < len(r.tracks) {
		r.pace.ahead += entries
		return
	}
	_, drained := sum(batches)
	r.pace.came(g.Asked, g.came, entries, drained)
}

// retire ends glances for good.
func (r *reader) retire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resting = false
	r.turn++
}

// beyond leaves out what a glance before has brought. In the same turn
// positions move only by what joins on, so the rest does.
func beyond(entries []eventlog.Entry, pos event.ID) []eventlog.Entry {
	n := 0
	for n < len(entries) && !pos.Less(entries[n].ID) {
		n++
	}
	return entries[n:]
}
