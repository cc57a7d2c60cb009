package chaos

import (
	"context"
	"time"
)

// stalls measures the longest time in which no device got anything.
type stalls struct {
	ended chan struct{}
	worst time.Duration // to be read when ended is closed
}

func watchStalls(ctx context.Context, handled func() int) *stalls {
	s := &stalls{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		last, since := handled(), time.Now()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if n := handled(); n != last {
					s.worst, last, since = max(s.worst, time.Since(since)), n, time.Now()
				}
			}
		}
	}()
	return s
}
