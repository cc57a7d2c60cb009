package redislog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// follower asks for what comes after its positions in the shards that are
// appended to, as a tail does while it rests.
type follower struct {
	mu       sync.Mutex
	pos      []event.ID
	appended [][]int
	got      []string // what was read, in one line for each glance
}

func (r *rig) follow() *follower {
	f := &follower{pos: make([]event.ID, r.Shards())}
	r.Follow(0, f)
	return f
}

func (f *follower) Glance(appended []int) eventlog.Glance {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.appended = append(f.appended, slices.Clone(appended))
	places := slices.Compact(slices.Sorted(slices.Values(appended)))
	g := eventlog.Glance{Places: places, Turn: 7}
	for _, i := range places {
		g.After = append(g.After, f.pos[i])
	}
	return g
}

func (f *follower) Glanced(g eventlog.Glance, anew bool, read func() ([]eventlog.Batch, error)) {
	batches, err := read()
	f.mu.Lock()
	defer f.mu.Unlock()
	line := fmt.Sprint(g.Places, " turn ", g.Turn)
	if anew {
		line += " anew"
	}
	if err != nil {
		line += " " + err.Error()
	}
	slices.SortFunc(batches, func(a, b eventlog.Batch) int { return a.Shard - b.Shard })
	for _, b := range batches {
		line += fmt.Sprint(" ", b.Shard, ":")
		for _, e := range b.Entries {
			line += " " + e.Event.Target
			f.pos[b.Shard] = e.ID
		}
		if !b.Drained {
			line += " …"
		}
	}
	f.got = append(f.got, line)
}

// seen returns what came since it was last asked.
func (f *follower) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	return got
}

func (r *rig) wantSeen(f *follower, lines ...string) {
	r.Helper()
	if diff := cmp.Diff(lines, f.seen()); diff != "" {
		r.Errorf("read along (-want +got):\n%s", diff)
	}
}

// foreign appends past this process.
func (r *rig) foreign(device string) {
	r.redis.Do("XADD", stream0, "*", "dev", device, "type", "t", "payload", "p")
}

func TestAppendsReadAlong(t *testing.T) {
	r := newRig(t, nil)
	f := r.follow()
	r.foreign("before")
	r.app("a")
	r.wantSeen(f, "[0] turn 7 anew 0: before a")
	r.app("b")
	r.wantSeen(f, "[0] turn 7 0: b")
	r.Append(t.Context(), []eventlog.Append{
		{Shard: 2, Events: []event.Event{{Target: "c", Type: "t"}, {Target: "d", Type: "t"}}},
		{Shard: 1, Events: []event.Event{{Target: "e", Type: "t"}}},
	})
	r.wantSeen(f, "[1 2] turn 7 1: e 2: c d")
	// Another server may stand behind another connection.
	<-time.After(2 * justHeard)
	r.redis.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	r.app("g")
	r.app("h")
	r.wantSeen(f, "[0] turn 7 anew 0: g", "[0] turn 7 0: h")
	f.pos[0] = event.MaxID
	r.app("i")
	r.wantSeen(f, "[0] turn 7")
}

func TestARoundReadsAlongForAllWhoAreInIt(t *testing.T) {
	r := newRig(t, nil)
	f := r.follow()
	r.app("a")
	r.redis.Stop()
	first := r.begin(t.Context(), "b", nil)
	r.gathering(0)
	ctx, cancel := context.WithCancel(t.Context())
	gone := r.begin(ctx, "gone", nil)
	r.gathering(1)
	rest := []<-chan eventlog.Result{first}
	for range 6 {
		rest = append(rest, r.begin(t.Context(), "c", nil))
	}
	r.gathering(7)
	cancel()
	<-gone
	r.redis.Cont()
	for _, done := range rest {
		if res := <-done; res.Err != nil {
			t.Error(res.Err)
		}
	}
	r.eventually(func() bool { return len(f.appended) == 3 })
	r.wantSeen(f, "[0] turn 7 anew 0: a", "[0] turn 7 0: b", "[0] turn 7 0:"+strings.Repeat(" c", 6))
	if n := len(f.appended[2]); n != 6 {
		t.Errorf("the follower was told of %d appends, want those 6 that were sent", n)
	}
}

// TestWhatWasNotStoredIsNotReadAlong: a server that refuses to store may be a
// replica by now, whose answers are of another past.
func TestWhatWasNotStoredIsNotReadAlong(t *testing.T) {
	r := newRig(t, nil)
	f := r.follow()
	r.app("a")
	f.seen()
	r.redis.Do("CONFIG", "SET", "maxmemory", "1")
	if res := r.try(t.Context(), "b", nil); res.Err == nil {
		t.Error("it was stored")
	}
	r.redis.Do("CONFIG", "SET", "maxmemory", "0")
	r.redis.Do("REPLICAOF", "127.0.0.1", "1")
	if res := r.try(t.Context(), "b", nil); res.Err == nil {
		t.Error("it was stored by a replica")
	}
	r.redis.Do("REPLICAOF", "NO", "ONE")
	r.wantSeen(f)

	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	if res := r.try(t.Context(), "c", once); res.Err != nil { // the script is taught afterwards
		t.Error(res.Err)
	}
	r.wantSeen(f)
	r.app("d")
	r.wantSeen(f, "[0] turn 7 0: c d")
}

func TestAFrozenServerIsNotReadAlong(t *testing.T) {
	r := newRig(t, nil)
	f := r.follow()
	r.app("a")
	f.seen()
	r.redis.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if res := r.try(ctx, "b", nil); res.Err == nil {
		t.Error("a frozen server has answered")
	}
	r.redis.Cont()
	r.wantSeen(f)
	r.app("c")
	for _, line := range f.seen() {
		// b may be there or not: nothing is claimed.
		if line != "[0] turn 7 anew 0: c" && line != "[0] turn 7 anew 0: b c" {
			t.Errorf("read along: %s", line)
		}
	}
}

// TestLargeEventsAreNotReadAlong: the publisher would wait for them.
func TestLargeEventsAreNotReadAlong(t *testing.T) {
	r := newRig(t, nil)
	f := r.follow()
	large := eventlog.Append{Events: []event.Event{{Target: "a", Type: "t", Payload: strings.Repeat("x", 1<<20)}}}
	for range 40 {
		r.Append(t.Context(), []eventlog.Append{large})
	}
	f.seen()
	r.Append(t.Context(), []eventlog.Append{large})
	r.wantSeen(f)
}

// TestARoundWithMuchReadsNothingAlong, although entries have been small so far.
func TestARoundWithMuchReadsNothingAlong(t *testing.T) {
	r := newRig(t, nil)
	f := r.follow()
	for range 1000 {
		r.groups[0].tail.sizes.add(300)
	}
	var broadcast []eventlog.Append
	for shard := range r.Shards() {
		broadcast = append(broadcast, eventlog.Append{Shard: shard, Events: []event.Event{
			{Target: event.Broadcast, Type: "t", Payload: strings.Repeat("x", alongBudget/3)},
		}})
	}
	r.Append(t.Context(), broadcast[:2])
	if n := len(f.seen()); n != 1 {
		t.Errorf("%d glances", n)
	}
	r.Append(t.Context(), broadcast)
	r.wantSeen(f)
}
