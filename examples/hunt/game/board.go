package game

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// A Board is the best players at a moment. It says all there is to say, so a newer
// one makes it needless: it is published with a conflation key.
type Board struct {
	Version int64 `json:"version"` // solves that have counted so far
	At      int64 `json:"at"`      // when it was read, in ms since 1970
	Since   int64 `json:"since"`   // when the oldest solve came that is new in it, likewise
	Players int64 `json:"players"` // who play at the moment
	Top     []Row `json:"top"`
}

// A board reads the best players from Redis, no more often than needed, and knows
// whether they have been published. Safe for concurrent use.
type board struct {
	// Set at construction.
	store   *store
	top     int
	every   time.Duration
	playing func() int64

	mu      sync.Mutex // guards what follows
	changed time.Time  // of the oldest solve that isn't published; zero: all are
	read    time.Time  // when last was read
	last    Board

	reading sync.Mutex // held by who asks Redis, so that one asks for all
}

// touch notes a solve.
func (b *board) touch(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed.IsZero() {
		b.changed = at
	}
}

// stale reports whether there is something to publish.
func (b *board) stale() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.changed.IsZero()
}

// latest is the board as it was at most every ago.
func (b *board) latest(ctx context.Context) (Board, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	b.mu.Lock()
	last, fresh, since := b.last, time.Since(b.read) < b.every, b.changed
	b.mu.Unlock()
	if fresh {
		return last, nil
	}
	return b.refresh(ctx, since)
}

// refresh reads anew; b.reading is held. since is of the oldest solve that is new
// in it, zero if none is.
func (b *board) refresh(ctx context.Context, since time.Time) (Board, error) {
	now := time.Now()
	if since.IsZero() {
		since = now
	}
	rows, version, err := b.store.top(ctx, b.top)
	if err != nil {
		return Board{}, err
	}
	fresh := Board{Version: version, At: now.UnixMilli(), Since: since.UnixMilli(), Players: b.playing(), Top: rows}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read, b.last = now, fresh
	return fresh, nil
}

// take is the board to be published, as JSON, and the moment of the oldest solve
// that is new in it. What is solved from now on is for the next one; what can't be
// published is put back.
func (b *board) take(ctx context.Context) (payload []byte, since time.Time, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	b.mu.Lock()
	since, b.changed = b.changed, time.Time{}
	b.mu.Unlock()
	fresh, err := b.refresh(ctx, since)
	if err == nil {
		payload, err = json.Marshal(fresh)
	}
	if err != nil {
		b.putBack(since)
	}
	return payload, since, err
}

// putBack notes that a board wasn't published after all.
func (b *board) putBack(since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = since // older than whatever came meanwhile
}
