package game

import (
	"math/rand/v2"
	"sync"
	"time"
)

// turns say when to come back to those whose answer couldn't be taken because
// Downlink takes events more slowly than players solve: one after the other, as fast
// as it takes them, and not all at once. The zero value is ready; safe for
// concurrent use.
type turns struct {
	mu    sync.Mutex
	since time.Time // of what follows
	taken int       // events for players that Downlink has taken since then
	pace  float64   // solves a second that this is worth
	line  time.Time // when all who were sent away will have had their turn
}

// Bounds of what somebody is told to wait; beyond the longest a crowd is spread
// over its second half.
const (
	shortestTurn = 2 * time.Second
	longestTurn  = 20 * time.Second
	// paceOver is over how long the pace is measured.
	paceOver = 5 * time.Second
)

// eventsPerSolve are a reward and the next challenge.
const eventsPerSolve = 2

// took notes that Downlink has taken so many events for players.
func (t *turns) took(events int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		t.since = now
	}
	t.taken += events
	if past := now.Sub(t.since); past >= paceOver {
		t.pace, t.taken, t.since = float64(t.taken)/eventsPerSolve/past.Seconds(), 0, now
	}
}

// next is how long the next one has to wait for its turn.
func (t *turns) next(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.Before(now) {
		t.line = now
	}
	each := time.Duration(float64(time.Second) / max(t.pace, 1))
	if wait := t.line.Sub(now) + each; wait <= longestTurn {
		t.line = t.line.Add(each)
		return max(wait, shortestTurn) + rand.N(time.Second) //nolint:gosec // no secret
	}
	return longestTurn/2 + rand.N(longestTurn/2) //nolint:gosec // no secret
}
