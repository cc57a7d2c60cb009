// Package backoff owns the arithmetic of jittered delays. It neither sleeps
// nor counts attempts; the caller does. Its invariant: a delay is never
// negative, never over its bound, and two callers seldom get the same one.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Backoff spaces repeated attempts at something that failed: exponential
// growth with full jitter, so that many callers that failed together don't
// come back together. It is a value without state; safe for concurrent use.
type Backoff struct {
	Base time.Duration // bound of the first delay; values under 1 ns count as 1 ns
	Max  time.Duration // bound of every delay; values under Base count as Base
}

// Delay is how long to wait before the attempt after attempt number n, counted
// from 0: uniform in (0, min(Max, Base·2ⁿ)]. It is never zero.
func (b Backoff) Delay(n int) time.Duration {
	return 1 + time.Duration(rand.Int64N(int64(b.bound(n))))
}

// bound is min(Max, Base·2ⁿ), at least 1 ns, without overflow.
func (b Backoff) bound(n int) time.Duration {
	bound := max(b.Base, 1)
	top := max(b.Max, bound)
	for ; n > 0 && bound < top; n-- {
		if bound > top/2 {
			return top
		}
		bound *= 2
	}
	return bound
}

// Jitter spreads d: uniform in [d·(1-fraction), d·(1+fraction)]. A fraction
// outside 0…1 counts as the nearer of the two; a negative d counts as 0.
func Jitter(d time.Duration, fraction float64) time.Duration {
	if d <= 0 || !(fraction > 0) { // the negation catches NaN too
		return max(d, 0)
	}
	// float64(d) may round up to 2⁶³ for the longest durations, which int64 can't hold.
	spread := int64(min(float64(d)*min(fraction, 1), 1<<62))
	spread = min(spread, int64(d))
	low, high := int64(d)-spread, int64(d)+min(spread, math.MaxInt64-int64(d))
	return time.Duration(low + int64(rand.Uint64N(uint64(high-low)+1)))
}
