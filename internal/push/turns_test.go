package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"downlink/internal/problem"
)

func newTestTurns(most, perDevice int) *turns {
	return newTurns(Options{
		InFlight: func() int { return most }, PerDevice: func() int { return perDevice }, Wait: time.Second, Metrics: NewMetrics(nil),
	})
}

func codeOf(err error) problem.Code {
	d, ok := errors.AsType[*problem.Document](err)
	if !ok || d.RetryAfter < 1 {
		return ""
	}
	return d.Code()
}

// TestTurnsInOrder: pushes to one device have their turn in the order in which
// they came, one at a time; who waits too long is told when to come again.
func TestTurnsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestTurns(100, 1)
		first, err := u.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range maxWaiting {
			all.Go(func() {
				turn, err := u.take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				turn.done(false)
			})
			synctest.Wait()
		}
		if _, err := u.take(t.Context(), "a"); codeOf(err) != problem.DeviceBusy {
			t.Errorf("%v: the line has no end", err)
		}
		other, err := u.take(t.Context(), "b")
		if err != nil {
			t.Errorf("%v: one device waits for another", err)
		}
		other.done(false)
		first.done(false)
		all.Wait()
		if !slices.IsSorted(order) || len(order) != maxWaiting {
			t.Errorf("%v", order)
		}
		long, err := u.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := u.take(t.Context(), "a"); codeOf(err) != problem.DeviceBusy || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := u.take(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		long.done(false)
		if u.inFlight() != 0 || len(u.lanes) != 0 || testutil.ToFloat64(u.metrics.waiting) != 0 {
			t.Errorf("%d under way, %d lanes", u.inFlight(), len(u.lanes))
		}
	})
}

// TestDoubtful: devices that failed or were slow have half of all places, so that
// the others always find one; a good answer clears the name.
func TestDoubtful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestTurns(4, 1)
		take := func(device string) *turn {
			t.Helper()
			turn, err := u.take(t.Context(), device)
			if err != nil {
				t.Fatal(device, err)
			}
			return turn
		}
		for i := range 3 {
			turn := take(fmt.Sprint("dead", i))
			if i == 1 {
				time.Sleep(slowAfter + 1) //nolint:forbidigo // in a bubble
			}
			turn.done(i != 1)
		}
		if n := testutil.ToFloat64(u.metrics.doubtful); n != 3 {
			t.Errorf("%v devices are doubtful", n)
		}
		held := []*turn{take("dead0"), take("dead1")}
		if _, err := u.take(t.Context(), "dead2"); codeOf(err) != problem.PushFull {
			t.Errorf("%v: doubtful devices have more than half", err)
		}
		good := []*turn{take("good0"), take("good1")}
		if _, err := u.take(t.Context(), "good2"); codeOf(err) != problem.PushFull {
			t.Errorf("%v: there is no bound", err)
		}
		for _, turn := range append(held, good...) {
			turn.done(false)
		}
		if n := testutil.ToFloat64(u.metrics.doubtful); n != 1 || u.inFlight() != 0 || len(u.lanes) != 0 || u.doubtful != 0 {
			t.Errorf("%v doubtful, %d under way, %d lanes", n, u.inFlight(), len(u.lanes))
		}
	})
}

// TestDoubtsEnd: devices that nobody pushes to any more aren't remembered.
func TestDoubtsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestTurns(10, 1)
		for i := range 1000 {
			turn, err := u.take(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			turn.done(true)
			time.Sleep(doubtFor / 100) //nolint:forbidigo // in a bubble
		}
		if n := len(u.doubts); n > 500 {
			t.Errorf("%d are remembered", n)
		}
	})
}

// TestTurnsModel: whatever comes and goes, no bound is passed, nobody waits while
// he could go, and at the end nothing is left.
func TestTurnsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			most, per := rapid.IntRange(1, 6).Draw(rt, "most"), rapid.IntRange(1, 3).Draw(rt, "per device")
			u := newTestTurns(most, per)
			var mu sync.Mutex
			busy, total := map[string]int{}, 0
			var all sync.WaitGroup
			for i := range rapid.IntRange(1, 40).Draw(rt, "pushes") {
				device := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "device")
				pause := rapid.IntRange(0, 300).Draw(rt, "pause")
				lasts := rapid.IntRange(1, 1500).Draw(rt, "lasts")
				patience := rapid.IntRange(1, 3000).Draw(rt, "patience")
				time.Sleep(time.Duration(pause) * time.Millisecond) //nolint:forbidigo // in a bubble
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(patience)*time.Millisecond)
					defer cancel()
					turn, err := u.take(ctx, device)
					if err != nil {
						if codeOf(err) == "" && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					busy[device]++
					if total++; busy[device] > per || total > most {
						t.Errorf("%d to %s, %d in all", busy[device], device, total)
					}
					mu.Unlock()
					time.Sleep(time.Duration(lasts) * time.Millisecond) //nolint:forbidigo // in a bubble
					mu.Lock()
					busy[device]--
					total--
					mu.Unlock()
					turn.done(i%5 == 0)
				})
			}
			all.Wait()
			if u.inFlight() != 0 || u.doubtful != 0 || len(u.lanes) != 0 {
				t.Errorf("%d under way, %d doubtful, %d lanes", u.inFlight(), u.doubtful, len(u.lanes))
			}
		})
	})
}
