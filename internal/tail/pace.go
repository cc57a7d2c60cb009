package tail

import (
	"context"
	"math"
	"time"

	"downlink/internal/eventlog"
)

// A pace decides how long a reader waits between two reads. Without a wait,
// each event wakes each gateway, and each then reads again with the names of
// all its shards: that burns the server's CPU long before its bandwidth. When
// events are rare there is no wait, and none is late.
type pace struct {
	most time.Duration // the longest wait; 0: none ever

	read time.Time // when the last read came back
	rate float64   // entries a second, over the last lately or so
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

// came notes what a read brought that was begun at asked, and returns how long
// to wait before the next.
func (p *pace) came(asked, now time.Time, batches []eventlog.Batch) time.Duration {
	entries, drained := 0, true
	for _, b := range batches {
		entries += len(b.Entries)
		drained = drained && b.Drained
	}
	since := max(now.Sub(p.read), time.Microsecond).Seconds()
	p.rate += (1 - math.Exp(-since/lately.Seconds())) * (float64(entries)/since - p.rate)
	p.read = now
	if !drained || p.rate*p.most.Seconds() < 2 {
		return 0 // more is there already; or waiting would hardly bring two together
	}
	gather := time.Duration(worthwhile / p.rate * float64(time.Second))
	return min(p.most, max(gather, share*now.Sub(asked)))
}

// rest waits until so long after the last read. What was done since counts.
func (p *pace) rest(ctx context.Context, wait time.Duration) {
	wait -= time.Since(p.read)
	if wait <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
