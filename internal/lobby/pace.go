package lobby

import (
	"math/rand/v2"
	"time"
)

// A pace is a token bucket that holds what one second brings, in one number: the
// time at which it is full again.
type pace struct{ full time.Duration }

// take takes a token, if there is one.
func (p *pace) take(now time.Duration, perSecond int) bool {
	each := time.Second / time.Duration(perSecond)
	full := max(p.full, now) + each
	if full > now+max(time.Second, each) {
		return false
	}
	p.full = full
	return true
}

// Turns are when those who were refused come back: one after the other, at the
// rate at which they can be admitted. The more were refused, the later the next
// one; as time passes, the line gets shorter by itself.
type turns struct{ line time.Duration } // when the line ends

// The longest time that anybody is told to stay away, because it can't be called
// back: for want of room, which may be made at any moment, and by a rate, which is
// known to let no more in. Beyond it a crowd is spread over the second half of
// that time.
const (
	longestForRoom = 2 * time.Minute
	longestByRate  = 5 * time.Minute
)

// next is after which time one more may come back: at its turn, not before
// earliest, and not after longest.
func (t *turns) next(now, earliest, longest time.Duration, perSecond int) time.Duration {
	at := max(t.line, now+earliest)
	if at > now+longest {
		return longest/2 + rand.N(longest/2)
	}
	t.line = max(t.line, now) + time.Second/time.Duration(perSecond)
	return at - now
}
