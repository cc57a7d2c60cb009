package shard

import (
	"context"
	"sync"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A Set is all shards of a gateway. Safe for concurrent use.
type Set struct {
	shards []*Shard
}

// NewSet makes the shards; store answers for their past.
func NewSet(store eventlog.Store, opts Options) *Set {
	permits := make(chan struct{}, max(opts.MaxLaps, 1))
	set := &Set{shards: make([]*Shard, opts.Shards)}
	for i := range set.shards {
		set.shards[i] = newShard(i, store, opts, permits)
	}
	return set
}

// Run makes the shards' laps until ctx ends, and returns when all have ended.
func (t *Set) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, s := range t.shards {
		wg.Go(func() { s.Run(ctx) })
	}
	wg.Wait()
	return nil
}

// Of is the shard of a device.
func (t *Set) Of(device string) *Shard {
	return t.shards[event.Shard(device, len(t.shards))]
}

// Start tells a shard where the tail begins.
func (t *Set) Start(shard int, at event.ID) { t.shards[shard].Start(at) }

// Dispatch hands a shard its next entries.
func (t *Set) Dispatch(shard int, entries []eventlog.Entry) { t.shards[shard].Dispatch(entries) }

// Reset tells a shard's members that nobody knows what they missed.
func (t *Set) Reset(shard int, at event.ID, reason event.Reason) { t.shards[shard].Reset(at, reason) }

// Overtaken judges a shard's members after the sweep has passed the tail.
func (t *Set) Overtaken(ctx context.Context, shard int) (event.ID, error) {
	return t.shards[shard].Overtaken(ctx)
}

// Members is how many subscribers are attached, for the consistency check.
func (t *Set) Members() int {
	n := 0
	for _, s := range t.shards {
		s.mu.Lock()
		n += s.members
		s.mu.Unlock()
	}
	return n
}

// Notes lets the sweep work from the hot window (eventlog.Recent).
func (t *Set) Notes(shard int, after, upTo event.ID) (map[string]event.ID, int, bool) {
	s := t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.doubt || after.Less(s.hot.floor) || s.pos.Less(upTo) {
		return nil, 0, false
	}
	notes, entries := make(map[string]event.ID), 0
	for _, m := range s.hot.window() {
		if m.ID.Compare(after) <= 0 {
			continue
		}
		if upTo.Less(m.ID) {
			break
		}
		entries++
		if !m.faulty {
			notes[m.Target] = m.ID
		}
	}
	return notes, entries, true
}

// HotBytes is the memory of the hot window over all shards.
func (t *Set) HotBytes() int {
	bytes, _ := t.hot()
	return bytes
}
