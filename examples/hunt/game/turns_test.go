package game

import (
	"slices"
	"testing"
	"time"
)

// TestTurns: who is sent away comes back as fast as Downlink takes what solves
// make, soon if it takes much, and never all at once.
func TestTurns(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	var fast turns
	fast.took(0, now)
	fast.took(500, now.Add(paceOver)) // 50 solves a second
	var waits []time.Duration
	for range 500 {
		waits = append(waits, fast.next(now))
	}
	last, first := slices.Max(waits), slices.Min(waits)
	if first < shortestTurn || last < 9*time.Second || last > 12*time.Second {
		t.Errorf("500 who come at once are spread over %v to %v, not up to 10s", first, last)
	}
	for later := range 10 { // two in each second or more
		from := time.Duration(later) * time.Second
		if n := count(waits, from, from+time.Second); n > 200 {
			t.Errorf("%d of 500 come back between %v and %v", n, from, from+time.Second)
		}
	}

	var none turns // Downlink takes nothing
	for range 1000 {
		if w := none.next(now); w < shortestTurn || w > longestTurn+time.Second {
			t.Fatalf("somebody is told to wait %v", w)
		}
	}
}

func count(waits []time.Duration, from, to time.Duration) (n int) {
	for _, w := range waits {
		if w >= from && w < to {
			n++
		}
	}
	return n
}
