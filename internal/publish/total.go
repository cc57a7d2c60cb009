package publish

import (
	"math/rand/v2"
	"time"
)

// total holds all publishers together to a number of entries a second. Each has
// an equal part of it for sure; what one leaves is for whoever comes. So a noisy
// publisher is held back before a quiet one, and nothing is left unused.
type total struct {
	all    bucket
	parts  buckets // by publisher
	active int     // publishers of whom there were some a moment ago
	asked  time.Time
	line   time.Time // when those who were refused will have had their turn
}

// part is the rate that is each publisher's own.
func (t *total) part(rate int, now time.Time) int {
	if now.Sub(t.asked) >= time.Second {
		t.asked, t.active = now, 0
		own := max(rate/max(len(t.parts.byName), 1), 1)
		for name, b := range t.parts.byName {
			if b.fill(own, now); b.tokens < float64(own) {
				t.active++
			} else {
				delete(t.parts.byName, name)
			}
		}
	}
	return max(rate/max(t.active, len(t.parts.byName), 1), 1)
}

// wait is how long until a publisher may have something stored; a rate of 0 is no
// rate.
func (t *total) wait(name string, rate, entries int, now time.Time) time.Duration {
	if rate == 0 {
		*t = total{}
		return 0
	}
	if t.all.at.IsZero() {
		t.all = bucket{tokens: float64(rate), at: now}
	}
	if t.all.fill(rate, now); t.all.tokens >= 1 {
		return 0
	}
	if t.parts.wait(name, t.part(rate, now), now) == 0 {
		return 0
	}
	return t.turn(rate, entries, now)
}

// longestTurn is the longest time that a publisher is told to wait for its turn.
// Beyond it a crowd is spread over its second half.
const longestTurn = time.Minute

// turn is when what was refused may be tried again: one after the other, at the
// rate, so that not all of it comes back at once.
func (t *total) turn(rate, entries int, now time.Time) time.Duration {
	if t.line.Before(now) {
		t.line = now
	}
	each := time.Duration(float64(entries) / float64(rate) * float64(time.Second))
	if wait := t.line.Sub(now) + each; wait <= longestTurn {
		t.line = t.line.Add(each)
		return wait + rand.N(time.Second)
	}
	return longestTurn/2 + rand.N(longestTurn/2)
}

// take takes what wait has allowed.
func (t *total) take(name string, rate, entries int, now time.Time) {
	if rate == 0 {
		return
	}
	t.all.tokens -= float64(entries)
	t.parts.take(name, t.part(rate, now), entries, now)
}

// put gives back what was taken.
func (t *total) put(name string, entries int) {
	t.all.tokens += float64(entries)
	t.parts.put(name, entries)
}
