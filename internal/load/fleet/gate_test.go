package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestGate: no more places are taken than there are, whoever waits gets all
// that were given back meanwhile, and settling leaves them as they were.
func TestGate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		places := rapid.IntRange(1, 10).Draw(rt, "places")
		g, taken := newGate(places), 0
		rt.Repeat(map[string]func(*rapid.T){
			"take": func(rt *rapid.T) {
				if taken == places {
					rt.Skip("it would wait")
				}
				most := rapid.IntRange(1, 12).Draw(rt, "most")
				n, err := g.take(context.Background(), most)
				if err != nil || n != min(most, places-taken) {
					rt.Fatalf("took %d of %d free places, at most %d: %v", n, places-taken, most, err)
				}
				taken += n
			},
			"give": func(rt *rapid.T) {
				n := rapid.IntRange(0, taken).Draw(rt, "n")
				g.give(n)
				taken -= n
			},
			"settle": func(rt *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := g.settle(ctx); (err == nil) != (taken == 0) {
					rt.Fatalf("with %d places taken: %v", taken, err)
				}
			},
		})
	})
}

func TestGateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(3)
		g.mu.Lock()
		g.free = 0
		g.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.take(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		settled := false
		go func() { settled = g.settle(t.Context()) == nil }()
		for range 3 {
			synctest.Wait()
			if settled {
				t.Fatal("settled before all places were free")
			}
			g.give(1)
		}
		synctest.Wait()
		if !settled || g.free != 3 {
			t.Errorf("settled: %v, with %d places free", settled, g.free)
		}
	})
}
