package logtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func appendCases() []testCase {
	return []testCase{
		{name: "order of one request", run: appendOrder},
		{name: "several shards in one call", run: appendSeveral},
		{name: "what is stored is what was sent", run: appendFidelity},
		{name: "optional fields", run: appendOptional},
		{name: "IDs lie above the founding", run: appendAboveFounded},
		{name: "concurrent writers and a following reader", run: appendConcurrent},
		{name: "cancelled context claims nothing", run: appendCancelled},
	}
}

func appendOrder(r *rig) {
	var events []event.Event
	for i := range 50 {
		events = append(events, order(r.device(1, i%3), fmt.Sprint(i)))
	}
	ids := r.append(1, events...)
	entries := r.all(1)
	if len(entries) != len(events) {
		r.Fatalf("the shard holds %d entries, want %d", len(entries), len(events))
	}
	for i, e := range entries {
		if e.ID != ids[i] || e.Event != events[i] || e.Fault != "" {
			r.Errorf("entry %d is %+v, want ID %s, event %+v", i, e, ids[i], events[i])
		}
		if i > 0 && !ids[i-1].Less(ids[i]) {
			r.Errorf("IDs don't rise: %s then %s", ids[i-1], ids[i])
		}
	}
	if head := r.state(1).Head; head != ids[len(ids)-1] {
		r.Errorf("Head = %s, want the last ID %s", head, ids[len(ids)-1])
	}
}

func appendSeveral(r *rig) {
	var batch []eventlog.Append
	for s := range r.opts.Shards {
		batch = append(batch, eventlog.Append{Shard: s, Events: []event.Event{
			{Target: event.Broadcast, Type: "reload", Payload: "{}"},
			order(r.device(s, 0), "for one"),
		}})
	}
	for i, res := range r.Log.Append(r.ctx, batch) {
		if res.Err != nil || len(res.IDs) != 2 || res.Repeated {
			r.Fatalf("result %d: %+v", i, res)
		}
		entries := r.all(i)
		if len(entries) != 2 || entries[0].ID != res.IDs[0] || entries[1].ID != res.IDs[1] {
			r.Errorf("shard %d holds %+v, want IDs %v", i, entries, res.IDs)
		}
	}
}

func appendFidelity(r *rig) {
	payloads := []string{
		"", "{}", " leading", "trailing\n", "\n", "a\nb", "a\rb", "a\r\nb", "\r\n\r\n", "nul\x00nul",
		"line\u2028para\u2029", "\ufeffbom", "매장 🚲 e\u0301", "id: 1-1\nevent: forged\ndata: x\n\n",
		strings.Repeat("0123456789abcdef", 1<<16), // 1 MiB
	}
	for i, p := range payloads {
		r.append(0, order(r.device(0, i), p))
	}
	for i, e := range r.all(0) {
		if e.Event.Payload != payloads[i] || e.Fault != "" {
			r.Errorf("payload %d came back with %d bytes (fault %q), want %d", i, len(e.Event.Payload), e.Fault, len(payloads[i]))
		}
	}
	if n := len(r.all(0)); n != len(payloads) {
		r.Errorf("%d entries, want %d", n, len(payloads))
	}
}

func appendOptional(r *rig) {
	full := order(r.device(2, 0), "p")
	full.Key, full.Idem = "price:17", "an idempotency key"
	full.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	onlyKey := order(r.device(2, 1), "p")
	onlyKey.Key = "k"
	group := event.Event{Target: "@매장", Type: "t", Payload: "p"}
	want := []event.Event{full, onlyKey, group, order(r.device(2, 0), "p")}
	r.append(2, want...)
	for i, e := range r.all(2) {
		if e.Event != want[i] {
			r.Errorf("entry %d is %+v, want %+v", i, e.Event, want[i])
		}
	}
}

func appendAboveFounded(r *rig) {
	for s, st := range r.founded {
		if st.Founded.IsZero() {
			r.Errorf("shard %d: Founded is 0-0; a cursor of an emptied log could be taken for it", s)
		}
		if id := r.appendN(s, 1)[0]; !st.Founded.Less(id) {
			r.Errorf("shard %d: the first ID %s isn't above the founding %s", s, id, st.Founded)
		}
	}
}

// appendConcurrent follows the log while many write: an entry that became
// visible after a higher one of its shard had been read would be lost.
func appendConcurrent(r *rig) {
	const writers, each = 8, 60
	var (
		mu    sync.Mutex
		acked = map[string]bool{} // shard and ID
		wg    sync.WaitGroup
	)
	for w := range writers {
		wg.Go(func() {
			last := make([]event.ID, r.opts.Shards)
			for i := range each {
				s := (w + i) % r.opts.Shards
				ids := r.append(s, order(r.device(s, 0), fmt.Sprintf("%d/%d", w, i)))
				if !last[s].Less(ids[0]) {
					r.Errorf("shard %d: a writer got %s after %s", s, ids[0], last[s])
				}
				last[s] = ids[0]
				mu.Lock()
				acked[fmt.Sprint(s, ids[0])] = true
				mu.Unlock()
			}
		})
	}
	read := map[string]bool{}
	r.follow(func(b eventlog.Batch) bool {
		for _, e := range b.Entries {
			read[fmt.Sprint(b.Shard, e.ID)] = true
		}
		return len(read) == writers*each
	})
	wg.Wait()
	for k := range acked {
		if !read[k] {
			r.Errorf("entry %s was acknowledged but not read", k)
		}
	}
	if len(acked) != writers*each || len(read) != len(acked) {
		r.Errorf("%d acknowledged, %d read, want %d", len(acked), len(read), writers*each)
	}
}

func appendCancelled(r *rig) {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	began := time.Now()
	res := r.Log.Append(ctx, []eventlog.Append{{Shard: 0, Events: []event.Event{order(r.device(0, 0), "p")}}})
	if took := time.Since(began); took > patience/2 {
		r.Errorf("Append took %v with a cancelled context", took)
	}
	if len(res) != 1 {
		r.Fatalf("%d results, want 1", len(res))
	}
	if res[0].Err == nil && (len(res[0].IDs) != 1 || res[0].IDs[0].IsZero()) {
		r.Errorf("success without an ID: %+v", res[0])
	}
	if stored := len(r.all(0)); res[0].Err == nil && stored != 1 {
		r.Errorf("success, but the shard holds %d entries", stored)
	}
}
