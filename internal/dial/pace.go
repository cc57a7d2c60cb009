package dial

import (
	"context"
	"time"

	"downlink/internal/backoff"
)

// A pacer spreads dials over time, whoever makes them and whatever they wait for.
type pacer struct {
	rate func() int // a second; asked again and again
	turn chan struct{}
}

func newPacer(rate func() int) *pacer { return &pacer{rate: rate, turn: make(chan struct{})} }

// fine is the shortest time that is waited between turns; above that rate there
// are several at a time.
const fine = time.Millisecond

// run gives turns until ctx ends: the first who has come is the next to go.
// Nothing is saved up while nobody comes.
func (p *pacer) run(ctx context.Context) {
	for {
		rate := max(p.rate(), 1)
		together := 1 + rate/int(time.Second/fine)
		for range together {
			select {
			case <-ctx.Done():
				return
			case p.turn <- struct{}{}:
			}
		}
		interval := time.Duration(together) * time.Second / time.Duration(rate)
		if !sleep(ctx, backoff.Jitter(interval, 0.5)) {
			return
		}
	}
}

// wait waits for a turn; false if ctx ends before.
func (p *pacer) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.turn:
		return true
	}
}
