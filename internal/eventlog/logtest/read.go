package logtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func readCases() []testCase {
	return []testCase{
		{name: "groups hold each shard once", opts: Options{Shards: 64}, run: readGroups},
		{name: "many shards at once", opts: Options{Shards: 64}, run: readMany},
		{name: "a waiting read wakes up", run: readWakes},
		{name: "an idle log answers empty", run: readIdle},
		{name: "a position is exclusive", run: readExclusive},
		{name: "backlog in pieces, drained at its end", run: readBacklog},
		{name: "a swept position goes on", opts: Options{Window: shortWindow}, run: readPastSwept},
		{name: "cancelled context", run: readCancelled},
	}
}

// A tail is one group's positions.
type tail struct {
	group  int
	shards []int
	after  []event.ID
}

func (r *rig) tails() []*tail {
	var ts []*tail
	for g, shards := range r.Log.Groups() {
		t := &tail{group: g, shards: shards}
		for _, s := range shards {
			t.after = append(t.after, r.founded[s].Founded)
		}
		ts = append(ts, t)
	}
	return ts
}

// next reads once, checks the form of the answer and moves the positions.
func (t *tail) next(ctx context.Context, r *rig) ([]eventlog.Batch, error) {
	batches, err := r.Log.Read(ctx, t.group, t.after)
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, b := range batches {
		i := indexOf(t.shards, b.Shard)
		if i < 0 || seen[b.Shard] || len(b.Entries) == 0 && b.Drained {
			return nil, fmt.Errorf("batch of shard %d with %d entries: of another group, twice, or empty", b.Shard, len(b.Entries))
		}
		seen[b.Shard] = true
		for _, e := range b.Entries {
			if !t.after[i].Less(e.ID) {
				return nil, fmt.Errorf("shard %d: %s comes after %s", b.Shard, e.ID, t.after[i])
			}
			t.after[i] = e.ID
		}
	}
	return batches, nil
}

func indexOf(list []int, x int) int {
	for i, v := range list {
		if v == x {
			return i
		}
	}
	return -1
}

// follow reads all groups from the founding on until visit says that it has
// seen enough. visit is called for one batch at a time.
func (r *rig) follow(visit func(eventlog.Batch) (enough bool)) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	var (
		mu   sync.Mutex
		done bool
		wg   sync.WaitGroup
	)
	for _, t := range r.tails() {
		wg.Go(func() {
			for ctx.Err() == nil {
				batches, err := t.next(ctx, r)
				if err != nil && ctx.Err() == nil {
					r.Errorf("Read: %v", err)
					cancel()
				}
				mu.Lock()
				for _, b := range batches {
					if visit(b) {
						done = true
						cancel()
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if !done {
		r.Errorf("the readers didn't see all within %v", patience)
	}
}

func readGroups(r *rig) {
	seen := map[int]int{}
	for _, shards := range r.Log.Groups() {
		for _, s := range shards {
			seen[s]++
		}
	}
	for s := range r.opts.Shards {
		if seen[s] != 1 {
			r.Errorf("shard %d is in %d groups", s, seen[s])
		}
	}
	if len(seen) != r.opts.Shards {
		r.Errorf("groups name %d shards, want %d", len(seen), r.opts.Shards)
	}
}

func readMany(r *rig) {
	want := map[int]event.ID{}
	for s := range r.opts.Shards {
		want[s] = r.appendN(s, 1)[0]
	}
	got := map[int]event.ID{}
	r.follow(func(b eventlog.Batch) bool {
		got[b.Shard] = b.Entries[0].ID
		return len(got) == r.opts.Shards
	})
	for s, id := range want {
		if got[s] != id {
			r.Errorf("shard %d: read %s, want %s", s, got[s], id)
		}
	}
}

func readWakes(r *rig) {
	t := r.tails()[0]
	shard := t.shards[len(t.shards)-1]
	type answer struct {
		batches []eventlog.Batch
		err     error
	}
	for range 3 {
		got := make(chan answer, 1)
		go func() {
			for {
				b, err := t.next(r.ctx, r)
				if err != nil || len(b) > 0 {
					got <- answer{b, err}
					return
				}
			}
		}()
		r.pass(20 * time.Millisecond) // most likely it waits by now; if not, the case is only easier
		id := r.appendN(shard, 1)[0]
		select {
		case a := <-got:
			if a.err != nil || len(a.batches) != 1 || a.batches[0].Shard != shard ||
				len(a.batches[0].Entries) != 1 || a.batches[0].Entries[0].ID != id || !a.batches[0].Drained {
				r.Fatalf("woke with %+v, %v; want only %s of shard %d, drained", a.batches, a.err, id, shard)
			}
		case <-time.After(patience):
			r.Fatal("an append doesn't wake the waiting read")
		}
	}
}

func readIdle(r *rig) {
	t := r.tails()[0]
	began := time.Now()
	batches, err := t.next(r.ctx, r)
	if err != nil || len(batches) != 0 {
		r.Errorf("Read of an idle log = %+v, %v; want nothing", batches, err)
	}
	if took := time.Since(began); took > patience {
		r.Errorf("an idle read took %v; its caller must look around now and then", took)
	}
}

func readExclusive(r *rig) {
	t := r.tails()[0]
	shard := t.shards[0]
	ids := r.appendN(shard, 3)
	t.after[0] = ids[1]
	batches, err := t.next(r.ctx, r)
	if err != nil || len(batches) != 1 || len(batches[0].Entries) != 1 || batches[0].Entries[0].ID != ids[2] {
		r.Errorf("Read after %s = %+v, %v; want only %s", ids[1], batches, err, ids[2])
	}
}

func readBacklog(r *rig) {
	const each = 8
	payload := strings.Repeat("x", 512<<10)
	want := map[int]int{}
	for s := range r.opts.Shards {
		for range each {
			r.append(s, order(r.device(s, 0), payload))
		}
		want[s] = each
	}
	for _, t := range r.tails() {
		open := map[int]bool{}
		for _, s := range t.shards {
			open[s] = true
		}
		for len(open) > 0 {
			batches, err := t.next(r.ctx, r)
			if err != nil || len(batches) == 0 {
				r.Fatalf("Read = %d batches, %v, with shards %v not drained", len(batches), err, open)
			}
			for _, b := range batches {
				if len(b.Entries) == 0 {
					continue // not looked at
				}
				want[b.Shard] -= len(b.Entries)
				if b.Drained != (want[b.Shard] == 0) {
					r.Fatalf("shard %d: Drained = %v with %d entries left", b.Shard, b.Drained, want[b.Shard])
				}
				if b.Drained {
					delete(open, b.Shard)
				}
			}
		}
	}
}

func readPastSwept(r *rig) {
	t := r.tails()[0]
	shard := t.shards[0]
	ids := r.appendN(shard, 3)
	r.sweepTo(shard, ids[2])
	next := r.appendN(shard, 1)[0]
	batches, err := t.next(r.ctx, r) // from the founding, which lies before what was swept
	if err != nil || len(batches) != 1 || batches[0].Entries[0].ID != next {
		r.Errorf("Read over swept entries = %+v, %v; want %s", batches, err, next)
	}
}

func readCancelled(r *rig) {
	t := r.tails()[0]
	ctx, cancel := context.WithCancel(r.ctx)
	time.AfterFunc(30*time.Millisecond, cancel)
	began := time.Now()
	for {
		_, err := t.next(ctx, r)
		if err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, eventlog.ErrUnavailable) {
				r.Errorf("a cancelled read answers %v", err)
			}
			break
		}
		if ctx.Err() != nil && time.Since(began) > patience {
			r.Fatal("a read goes on after its context has ended")
		}
	}
	if took := time.Since(began); took > patience/2 {
		r.Errorf("a cancelled read took %v to end", took)
	}
}
