package filelog

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// TestReadIsFair: a shard with a long backlog doesn't keep the others waiting,
// and one answer is bounded.
func TestReadIsFair(t *testing.T) {
	o := testOptions(t)
	o.Shards, o.MaxReadBytes = 16, 64<<10
	l := open(t, o)
	big := strings.Repeat("x", 10<<10)
	for s := range o.Shards {
		n := 3
		if s == 0 {
			n = 60
		}
		put(t, l, s, strings.Split(strings.Repeat(big+",", n-1)+big, ",")...)
	}
	after := make([]event.ID, o.Shards)
	behind := map[int]int{} // reads since the shard was served
	for reads := 0; ; reads++ {
		batches, err := l.Read(t.Context(), 0, after)
		if err != nil {
			t.Fatal(err)
		}
		size, open := 0, 0
		for s := range o.Shards {
			behind[s]++
		}
		drained := map[int]bool{} // said, or not said otherwise
		for s := range o.Shards {
			drained[s] = true
		}
		for _, b := range batches {
			drained[b.Shard] = b.Drained
			if len(b.Entries) > 0 {
				behind[b.Shard] = 0
			}
			for _, e := range b.Entries {
				after[b.Shard] = e.ID
				size += len(e.Event.Payload)
			}
		}
		if size > o.MaxReadBytes+len(big) {
			t.Errorf("one read gave %d bytes, allowed are %d and one entry", size, o.MaxReadBytes)
		}
		for s := range o.Shards {
			if after[s] != stateOf(t, l, s).Head {
				open++
				if drained[s] {
					t.Errorf("shard %d isn't said to hold more", s)
				}
				if behind[s] > 3 {
					t.Fatalf("shard %d waits for %d reads", s, behind[s])
				}
			}
		}
		if open == 0 {
			return
		}
		if reads > 100 {
			t.Fatal("no end")
		}
	}
}

func TestWrongQuestions(t *testing.T) {
	l := open(t, testOptions(t))
	ctx := t.Context()
	_, errRead := l.Read(ctx, 1, make([]event.ID, 4))
	_, errPositions := l.Read(ctx, 0, make([]event.ID, 3))
	_, errInspect := l.Inspect(ctx, 0, make([]event.ID, 5))
	_, errRange := l.Range(ctx, 4, event.ID{}, event.MaxID, 1)
	_, _, errJudge := l.Judge(ctx, -1, nil)
	_, errSuspect := l.Suspect(ctx, 4, event.ID{})
	_, errSweep := l.Sweep(ctx, 4, nil)
	errAppend := l.Append(ctx, []eventlog.Append{{Shard: 4, Events: []event.Event{{Target: "d", Type: "t"}}}})[0].Err
	for i, err := range []error{errRead, errPositions, errInspect, errRange, errJudge, errSuspect, errSweep, errAppend} {
		if err == nil || !strings.Contains(err.Error(), "asked for") {
			t.Errorf("question %d: %v", i, err)
		}
	}
}

// TestLimitLowered: what was stored under a higher limit is a fault now, and no
// poison.
func TestLimitLowered(t *testing.T) {
	o := testOptions(t)
	l := open(t, o)
	ids := put(t, l, 0, strings.Repeat("x", 1001), strings.Repeat("y", 1000))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.MaxEventBytes = most(1000)
	l = open(t, o)
	page, err := l.Range(t.Context(), 0, event.ID{}, ids[1], 1<<20)
	if err != nil || len(page.Entries) != 2 {
		t.Fatalf("Range = %+v, %v", page, err)
	}
	want := eventlog.Entry{ID: ids[0], Event: event.Event{Target: "pos-1"}, Fault: eventlog.FaultTooLarge}
	if page.Entries[0] != want || page.Entries[1].Fault != "" {
		t.Errorf("entries %+v, want the first as %+v and the second good", page.Entries, want)
	}
	res := l.Append(t.Context(), []eventlog.Append{{Events: []event.Event{{Target: "d", Type: "t", Payload: strings.Repeat("x", 1001)}}}})[0]
	if !errors.Is(res.Err, event.ErrTooLarge) || len(res.IDs) != 1 || !res.IDs[0].IsZero() {
		t.Errorf("Append over the limit = %+v", res)
	}
}

// TestCloseUnderLoad: every call ends, with success or ErrClosed, and what was
// acknowledged is there afterwards.
func TestCloseUnderLoad(t *testing.T) {
	o := testOptions(t)
	l := open(t, o)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		acked []event.ID
	)
	ended := func(err error) bool {
		if err != nil && !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("a call ended with %v", err)
		}
		return err != nil
	}
	started := make(chan struct{}, 8)
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				res := l.Append(t.Context(), []eventlog.Append{{Events: []event.Event{{Target: "d", Type: "t"}}}})[0]
				if ended(res.Err) {
					return
				}
				mu.Lock()
				acked = append(acked, res.IDs[0])
				mu.Unlock()
				if i == 5 {
					started <- struct{}{}
				}
			}
		})
	}
	for _, call := range []func() error{
		func() error { _, err := l.Read(t.Context(), 0, make([]event.ID, 4)); return err },
		func() error { _, err := l.Range(t.Context(), 0, event.ID{}, event.MaxID, 1<<20); return err },
		func() error { _, err := l.Inspect(t.Context(), 0, make([]event.ID, 4)); return err },
		func() error { _, err := l.Sweep(t.Context(), 0, nil); return err },
	} {
		wg.Go(func() {
			for !ended(call()) {
			}
		})
	}
	for range 4 {
		<-started
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	l = open(t, o)
	for _, id := range acked {
		if got := judge(t, l, 0, id); got != "" {
			t.Fatalf("acknowledged entry %s is judged %q after a restart", id, got)
		}
	}
}
