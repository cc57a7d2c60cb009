package redislog

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// lineRate is how many bytes a second pass over a connection of the slow line
// here: what is asked for at once takes it several times as long as a call may.
const lineRate = 256 << 10

// soon is within what time a call must answer beside them: much less than they
// take, and so much for a busy machine.
const soon = 20 * time.Second

// others are the calls that must answer soon whatever else is under way; but
// for those named. That the tail reads on is shown by an entry of someone else.
func (w *wide) others(under string, busy *atomic.Int64, but ...string) {
	w.Helper()
	ctx := context.Background()
	calls := map[string]func() error{
		"append": func() error {
			return w.Append(ctx, []eventlog.Append{{Shard: 1, Events: []event.Event{{Target: "*", Type: "t"}}}})[0].Err
		},
		"order": func() error {
			_, err := w.Control(ctx, 3, eventlog.Control{Kind: eventlog.Disconnect, Device: "a"})
			return err
		},
		"claim": func() error {
			_, err := w.Claim(ctx, 3, under, time.Minute)
			return err
		},
		"verdict": func() error {
			_, _, err := w.Judge(ctx, 3, []eventlog.Question{{Targets: []string{"a"}}})
			return err
		},
		"inspection": func() error {
			_, err := w.Inspect(ctx, 0, make([]event.ID, 64))
			return err
		},
		"page": func() error {
			_, err := w.Range(ctx, 2, event.ID{}, event.MaxID, 1<<10)
			return err
		},
		"sweep": func() error {
			_, err := w.Sweep(ctx, 2, nil)
			return err
		},
		"tail": func() error {
			w.redis.Do("XADD", w.byShard[2].stream, "*", "dev", "*", "type", "t", "payload", "p")
			for before := w.read[2]; w.read[2] == before; {
				w.next()
			}
			return nil
		},
	}
	for _, name := range but {
		delete(calls, name)
	}
	for name, call := range calls {
		began := time.Now()
		if err := call(); err != nil {
			w.Errorf("%s: %s: %v", under, name, err)
		}
		if took := time.Since(began); took > soon {
			w.Errorf("%s: %s takes %v", under, name, took)
		}
	}
	if busy != nil && busy.Load() == 0 {
		w.Errorf("%s: it was over before that", under)
	}
}

// several makes a call several times at once, and counts those under way.
func several(n int, call func() error) (busy *atomic.Int64, wait func() error) {
	busy = new(atomic.Int64)
	busy.Store(int64(n))
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range n {
		all.Go(func() {
			err := call()
			busy.Add(-1)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			}
		})
	}
	return busy, func() error { all.Wait(); return failed }
}

// TestNobodyStarves: replay and sweeping, appends, the tail, and the rest (the
// leases, the watchdog, orders) have connections of their own. However much one
// of them has asked for, the others answer as ever.
func TestNobodyStarves(t *testing.T) {
	w := newWide(t)
	w.put(1, 16, strings.Repeat("x", 256<<10))
	w.all(1, 16)
	w.others("nothing", nil) // every connection is made
	flows := func() bool {
		before := w.proxy.Sent()
		<-time.After(50 * time.Millisecond)
		return w.proxy.Sent() > before
	}

	w.proxy.Slow(0, lineRate)
	busy, wait := several(8, func() error {
		_, err := w.Range(context.Background(), 0, event.ID{}, event.MaxID, 4<<20)
		return err
	})
	testkit.Eventually(t, "pages arrive", flows)
	w.others("replay", busy, "page", "sweep")
	w.proxy.Slow(0, 0)
	if err := wait(); err != nil {
		t.Errorf("replay: %v", err)
	}

	w.proxy.Slow(0, lineRate)
	large := event.Event{Target: "*", Type: "t", Payload: strings.Repeat("x", 1<<20)}
	busy, wait = several(8, func() error {
		return w.Append(context.Background(), []eventlog.Append{{Shard: 63, Events: []event.Event{large}}})[0].Err
	})
	w.others("appends", busy, "append")
	w.proxy.Slow(0, 0)
	if err := wait(); err != nil {
		t.Errorf("appends: %v", err)
	}
}

// TestAHeldTailHoldsNobodyUp, and is noticed in the documented time.
func TestAHeldTailHoldsNobodyUp(t *testing.T) {
	w := newWide(t)
	w.others("nothing", nil)
	for w.next() > 0 {
	}
	const limit = 2 * time.Second
	w.groups[0].tail.limit, w.groups[0].tail.brief = w.opts.BlockTime+limit, limit
	type failure struct{ began, ended time.Time }
	ctx, stop := context.WithCancel(t.Context())
	failures := make(chan failure, 1000)
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := w.Read(ctx, 0, w.after); err != nil {
				select { // a busy machine may be why
				case failures <- failure{began, time.Now()}:
				case <-ctx.Done():
				}
			}
		}
	})
	defer reading.Wait()
	defer stop()
	var stalled time.Time
	testkit.Eventually(t, "the tail waits", func() bool {
		stalled = time.Now()
		return w.proxy.StallThose("BLOCK") == 1
	})
	w.others("a held tail", nil, "tail")
	for f := range failures {
		if f.ended.Before(stalled) {
			continue
		}
		if took := f.ended.Sub(f.began); took > w.opts.BlockTime+limit+soon {
			t.Errorf("the tail noticed it after %v", took)
		}
		break
	}
	w.proxy.Resume()
}
