package fleet

import (
	"context"
	"sync"
)

// A gate has places for a bounded number of connections that are opening.
// Several may be taken and given back at a time: where each connection wakes
// who waits for its place, the generator is busy with waking. Only one
// goroutine takes; any may give.
type gate struct {
	places int
	more   chan struct{} // has an element if places were given back since it was last empty

	mu   sync.Mutex
	free int
}

func newGate(places int) *gate {
	return &gate{places: places, free: places, more: make(chan struct{}, 1)}
}

// take waits until a place is free, and takes as many as are, at most most.
func (g *gate) take(ctx context.Context, most int) (int, error) {
	for {
		g.mu.Lock()
		n := min(g.free, most)
		g.free -= n
		g.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-g.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// give gives places back.
func (g *gate) give(n int) {
	g.mu.Lock()
	g.free += n
	g.mu.Unlock()
	select {
	case g.more <- struct{}{}:
	default:
	}
}

// settle waits until all places are free. What the Observer was told of the
// connections that had them happened before.
func (g *gate) settle(ctx context.Context) error {
	taken := 0
	defer func() { g.give(taken) }()
	for taken < g.places {
		n, err := g.take(ctx, g.places-taken)
		if err != nil {
			return err
		}
		taken += n
	}
	return nil
}
