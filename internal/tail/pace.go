package tail

import (
	"math"
	"time"
)

// A pace decides how long a reader waits between two reads. Without a wait,
// each event wakes each gateway, and each then reads again with the names of
// all its shards: that burns the server's CPU long before its bandwidth. When
// events are rare there is no wait, and none is late.
type pace struct {
	most time.Duration // the longest wait; 0: none ever

	read  time.Time     // when the last read came back
	rate  float64       // entries a second, over the last lately or so
	fresh float64       // those among them that reads brought
	wait  time.Duration // from read until the next one
	ahead int           // entries that came otherwise since read
}

const (
	// worthwhile is how many entries a read should bring. One costs Redis about
	// 90 µs for the names of 64 shards, and 100 more if it has to wait.
	worthwhile = 8
	// share is how many times as long as its last read a reader rests: one that
	// waits for its turn at a loaded server asks less often.
	share = 2
	// lately is how fast old entries are forgotten.
	lately = 100 * time.Millisecond
)

// came notes what a read of all shards brought that was begun at asked, beside
// what is counted in ahead, and whether it left nothing unread.
func (p *pace) came(asked, now time.Time, entries int, drained bool) {
	since := max(now.Sub(p.read), time.Microsecond).Seconds()
	weight := 1 - math.Exp(-since/lately.Seconds())
	p.fresh += weight * (float64(entries)/since - p.fresh)
	p.rate += weight * (float64(entries+p.ahead)/since - p.rate)
	p.read, p.wait, p.ahead = now, 0, 0
	if !drained || p.rate*p.most.Seconds() < 2 {
		return // more is there already; or waiting would hardly bring two together
	}
	gather := worthwhile / max(p.fresh, worthwhile) * float64(time.Second) // a second at most
	p.wait = min(p.most, max(time.Duration(gather), share*now.Sub(asked)))
}

// left is how long to wait until the next read. What was done since the last
// one counts.
func (p *pace) left(now time.Time) time.Duration { return p.wait - now.Sub(p.read) }

// soon reports whether the next read is due before long, so that it may as well
// be done along with something else.
func (p *pace) soon(now time.Time) bool { return p.left(now) < p.wait/4 }
