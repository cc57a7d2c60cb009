package logtest

import (
	"errors"
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func onceCases() []testCase {
	return []testCase{
		{name: "a repeat returns the same IDs", run: onceRepeat},
		{name: "another body is a conflict", run: onceConflict},
		{name: "publishers don't meet", run: onceScopes},
		{name: "concurrent callers store once", run: onceConcurrent},
		{name: "the same key twice in one call", run: onceTwiceInCall},
		{name: "expires with the window", opts: Options{Window: shortWindow}, run: onceExpires},
		{name: "nothing is answered from a swept entry", opts: Options{Window: shortWindow}, run: onceSwept},
		{name: "a missing entry is stored again", run: onceMissing},
		{name: "survives a restart", run: onceReopen},
	}
}

func once(scope, key, fingerprint string) *eventlog.Once {
	return &eventlog.Once{Scope: scope, Key: key, Fingerprint: fingerprint}
}

func (r *rig) wantStored(res eventlog.Result, repeated bool, n int) {
	r.Helper()
	if res.Err != nil || res.Repeated != repeated || len(res.IDs) != n {
		r.Fatalf("result %+v, want %d IDs, repeated %v", res, n, repeated)
	}
	for _, id := range res.IDs {
		if id.IsZero() {
			r.Fatalf("result %+v: an ID is missing", res)
		}
	}
}

func (r *rig) wantIDs(shard int, want ...event.ID) {
	r.Helper()
	r.wantPage(eventlog.Page{Entries: r.all(shard)}, event.ID{}, want...)
}

func onceRepeat(r *rig) {
	events := []event.Event{order(r.device(0, 0), "a"), order(r.device(0, 1), "b"), order(r.device(0, 0), "c")}
	first := r.appendOnce(0, once("till", "k", "f"), events...)
	r.wantStored(first, false, 3)
	for range 2 {
		again := r.appendOnce(0, once("till", "k", "f"), events...)
		r.wantStored(again, true, 3)
		for i := range again.IDs {
			if again.IDs[i] != first.IDs[i] {
				r.Errorf("repeat got %s, want %s", again.IDs[i], first.IDs[i])
			}
		}
	}
	r.wantIDs(0, first.IDs...)
}

func onceConflict(r *rig) {
	first := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
	r.wantStored(first, false, 1)
	res := r.appendOnce(0, once("till", "k", "g"), order(r.device(0, 0), "b"))
	if !errors.Is(res.Err, eventlog.ErrConflict) {
		r.Errorf("another body under the same key: %+v, want ErrConflict", res)
	}
	r.wantIDs(0, first.IDs...)
	r.wantStored(r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a")), true, 1)
}

func onceScopes(r *rig) {
	var ids []event.ID
	for _, o := range []*eventlog.Once{once("a", "bc", "f"), once("ab", "c", "f"), once("a", "b", "f"), once("", "abc", "f"), once("abc", "", "f")} {
		res := r.appendOnce(0, o, order(r.device(0, 0), "p"))
		r.wantStored(res, false, 1)
		ids = append(ids, res.IDs...)
	}
	r.wantIDs(0, ids...)
}

func onceConcurrent(r *rig) {
	results := make([]eventlog.Result, 24)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			results[i] = r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"), order(r.device(0, 1), "b"))
		})
	}
	wg.Wait()
	fresh := 0
	for _, res := range results {
		r.wantStored(res, res.Repeated, 2)
		if res.IDs[0] != results[0].IDs[0] || res.IDs[1] != results[0].IDs[1] {
			r.Errorf("callers of one key got %v and %v", res.IDs, results[0].IDs)
		}
		if !res.Repeated {
			fresh++
		}
	}
	if fresh != 1 {
		r.Errorf("%d callers were told that they stored it, want 1", fresh)
	}
	r.wantIDs(0, results[0].IDs...)
}

func onceTwiceInCall(r *rig) {
	a := eventlog.Append{Shard: 0, Events: []event.Event{order(r.device(0, 0), "a")}, Once: once("till", "k", "f")}
	other := a
	other.Once = once("till", "k", "another body")
	res := r.Log.Append(r.ctx, []eventlog.Append{a, a, other})
	r.wantStored(res[0], false, 1)
	r.wantStored(res[1], true, 1)
	if res[0].IDs[0] != res[1].IDs[0] {
		r.Errorf("one key got %s and %s in one call", res[0].IDs[0], res[1].IDs[0])
	}
	if !errors.Is(res[2].Err, eventlog.ErrConflict) {
		r.Errorf("another body in the same call: %+v, want ErrConflict", res[2])
	}
	r.wantIDs(0, res[0].IDs...)
}

func onceExpires(r *rig) {
	began := time.Now()
	first := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
	r.wantStored(first, false, 1)
	var renewed time.Time
	r.eventually("the key expires", func() bool {
		renewed = time.Now()
		res := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
		if res.Err != nil {
			r.Fatalf("repeat: %v", res.Err)
		}
		return res.IDs[0] != first.IDs[0]
	})
	if took := time.Since(began); r.Advance == nil && took < r.opts.Window*8/10 {
		r.Errorf("the key was forgotten after %v, inside the window of %v", took, r.opts.Window)
	}
	res := r.appendOnce(0, once("till", "k", "another body"), order(r.device(0, 0), "b"))
	if took := time.Since(renewed); took > r.opts.Window*8/10 {
		r.Logf("it took %v to ask again: the key may have expired once more", took)
	} else if !errors.Is(res.Err, eventlog.ErrConflict) {
		r.Errorf("after the renewal another body answers %+v, want ErrConflict", res)
	}
}

func onceSwept(r *rig) {
	first := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
	r.sweepTo(0, first.IDs[0])
	again := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
	r.wantStored(again, false, 1)
	if again.IDs[0] == first.IDs[0] {
		r.Errorf("the repeat was answered with %s, which is swept", first.IDs[0])
	}
	r.wantIDs(0, again.IDs...)
}

func onceMissing(r *rig) {
	if r.Remove == nil {
		r.Skip("this log has no way to remove an entry from outside")
	}
	events := []event.Event{order(r.device(0, 0), "a"), order(r.device(0, 1), "b"), order(r.device(0, 2), "c")}
	first := r.appendOnce(0, once("till", "k", "f"), events...)
	r.wantStored(first, false, 3)
	r.Remove(0, first.IDs[1])
	again := r.appendOnce(0, once("till", "k", "f"), events...)
	r.wantStored(again, false, 3)
	if again.IDs[0] != first.IDs[0] || again.IDs[2] != first.IDs[2] || !first.IDs[2].Less(again.IDs[1]) {
		r.Errorf("repeat got %v after %v with the second removed; want a new ID for it alone", again.IDs, first.IDs)
	}
	r.wantIDs(0, again.IDs[0], again.IDs[2], again.IDs[1])
	third := r.appendOnce(0, once("till", "k", "f"), events...)
	r.wantStored(third, true, 3)
	if third.IDs[1] != again.IDs[1] {
		r.Errorf("third call got %v, want %v", third.IDs, again.IDs)
	}
}

func onceReopen(r *rig) {
	if r.Reopen == nil {
		r.Skip("this log can't be reopened by the harness")
	}
	first := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
	r.Log = r.Reopen()
	again := r.appendOnce(0, once("till", "k", "f"), order(r.device(0, 0), "a"))
	r.wantStored(again, true, 1)
	if again.IDs[0] != first.IDs[0] {
		r.Errorf("after a restart the key gives %s, want %s", again.IDs[0], first.IDs[0])
	}
}
