package redislog

import (
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/testkit"
)

// A wide is a log of 64 shards on one server that is reached through a proxy,
// which counts what the server says; and a reader of all shards.
type wide struct {
	*testing.T
	*Log
	redis *testkit.Redis
	proxy *testkit.Proxy
	after []event.ID
	read  []int // entries, by shard
	turns []int // the read that first brought something since all, by shard
	reads int
	most  int64 // what a read brought at most, in bytes
}

func newWide(t *testing.T) *wide {
	t.Helper()
	r := testkit.StartRedis(t)
	w := &wide{T: t, redis: r, proxy: testkit.StartProxy(t, r.Addr()), after: make([]event.ID, 64), read: make([]int, 64), turns: make([]int, 64)}
	opts := testOptions(t, r)
	opts.URL, opts.Shards, opts.BlockTime = "redis://"+w.proxy.Addr(), 64, 200*time.Millisecond
	opts.CallTimeout = 2 * time.Minute
	w.Log = open(t, opts)
	found, err := w.Inspect(t.Context(), 0, make([]event.ID, 64))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		w.after[i] = f.State.Head
	}
	return w
}

// put adds n entries to each of the first shards, past the log's own connections.
func (w *wide) put(shards, n int, payload string) {
	w.Helper()
	commands := make([][]string, 0, n*shards)
	for range n {
		for i := range shards {
			commands = append(commands, []string{"XADD", w.byShard[i].stream, "*", "dev", "*", "type", "t", "payload", payload})
		}
	}
	w.redis.Pipe(commands...)
}

// next reads once, and says how many entries came.
func (w *wide) next() (entries int) {
	w.Helper()
	before := w.proxy.Sent()
	batches, err := w.Read(w.Context(), 0, w.after)
	if err != nil {
		w.Fatal(err)
	}
	w.reads++
	for _, b := range batches {
		for _, e := range b.Entries {
			if !w.after[b.Shard].Less(e.ID) {
				w.Fatalf("shard %d: %s comes after %s", b.Shard, e.ID, w.after[b.Shard])
			}
			w.after[b.Shard] = e.ID
		}
		w.read[b.Shard] += len(b.Entries)
		if w.turns[b.Shard] == 0 && len(b.Entries) > 0 {
			w.turns[b.Shard] = w.reads
		}
		entries += len(b.Entries)
	}
	w.most = max(w.most, w.proxy.Sent()-before)
	return entries
}

// all reads until each of the first shards has brought n entries since the last
// all.
func (w *wide) all(shards, n int) {
	w.Helper()
	began, left := w.reads, n*shards
	for _, read := range w.read {
		left -= read
	}
	for left > 0 {
		left -= w.next()
		if w.reads-began > 10_000 {
			w.Fatalf("%d entries don't come", left)
		}
	}
	for i := range shards {
		if w.read[i] != n {
			w.Errorf("shard %d brought %d entries, want %d", i, w.read[i], n)
		}
		w.read[i], w.turns[i] = 0, 0
	}
}

// reply is what a reply has besides its entries' bytes, at most.
const reply = 64 << 10

// TestRepliesAreBounded: whatever is unread, and whatever entries were like so
// far, a read brings no more than its budget and one entry.
func TestRepliesAreBounded(t *testing.T) {
	w := newWide(t)
	large := strings.Repeat("x", 1<<20)
	w.put(64, 30, "small")
	w.all(64, 30) // so that large ones come as a surprise
	if !w.groups[0].tail.sizes.surely(mostBudget, 64) {
		t.Fatal("entries aren't known to be small")
	}
	<-time.After(2 * nearEnd) // nobody reads for a moment
	w.put(64, 1, large)
	w.put(64, 1, "small")
	w.redis.Do("CONFIG", "RESETSTAT")
	w.most, w.reads = 0, 0
	for range 9 {
		w.next()
	}
	for i, turn := range w.turns {
		if turn == 0 {
			t.Errorf("nothing of shard %d came with the first 9 reads", i)
		}
	}
	w.all(64, 2)
	if w.most > mostBudget+1<<20+reply {
		t.Errorf("64 MiB were unread, and one reply brought %d KiB", w.most>>10)
	}
	t.Logf("64 MiB in %d reads of %d KiB at most; %s", w.reads, w.most>>10, w.redis.Info("commandstats", "cmdstat_evalsha"))
}

// TestABurstIsBounded: the same while somebody reads all the time, as a
// broadcast of the largest event does it.
func TestABurstIsBounded(t *testing.T) {
	w := newWide(t)
	w.put(64, 30, "small")
	w.all(64, 30)
	large := strings.Repeat("x", 1<<20)
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		w.put(64, 1, large)
	}()
	w.most, w.reads = 0, 0
	w.all(64, 1)
	<-stored
	if w.most > 2*mostBudget {
		t.Errorf("64 MiB came within a moment, and one reply brought %d KiB of them", w.most>>10)
	}
	t.Logf("64 MiB in %d reads of %d KiB at most", w.reads, w.most>>10)
}

// TestPagesAreBounded: the same for what is read again. What the tail has read,
// and found small, is read by number.
func TestPagesAreBounded(t *testing.T) {
	w := newWide(t)
	const page = 1 << 20
	begin := w.after[0]
	scripts := func() string { return w.redis.Info("commandstats", "cmdstat_evalsha") }
	pages := func(after event.ID, most int64, want int) (n int) {
		t.Helper()
		got := 0
		for ; after != w.after[0]; n++ {
			before := w.proxy.Sent()
			p, err := w.Range(t.Context(), 0, after, w.after[0], page)
			if err != nil {
				t.Fatal(err)
			}
			if sent := w.proxy.Sent() - before; sent > most {
				t.Errorf("a page of 1 MiB took %d KiB", sent>>10)
			}
			after = p.Through
			got += len(p.Entries)
		}
		if got != want {
			t.Errorf("the pages hold %d entries, want %d", got, want)
		}
		return n
	}
	w.put(1, 100, strings.Repeat("s", 100))
	w.all(1, 100)
	w.redis.Do("CONFIG", "RESETSTAT")
	pages(begin, page, 100)
	if s := scripts(); s != "" {
		t.Errorf("what the tail has read is read by a script: %s", s)
	}
	w.put(1, 20, strings.Repeat("x", 1<<20))
	w.all(1, 20)
	middle := w.after[0]
	w.put(1, 10, "small")
	w.all(1, 10)
	if n := pages(begin, page+1<<20+reply, 130); n < 20 {
		t.Errorf("20 MiB came in %d pages", n)
	}
	w.redis.Do("CONFIG", "RESETSTAT")
	pages(middle, page, 10)
	if s := scripts(); s != "" {
		t.Errorf("what came after the last large one is read by a script: %s", s)
	}
	w.put(1, 100, "unread") // by the tail
	if _, err := w.Range(t.Context(), 0, middle, event.MaxID, page); err != nil || scripts() == "" {
		t.Errorf("what nobody has read yet is read by number (%v)", err)
	}
}

func TestSmall(t *testing.T) {
	id := func(ms uint64) event.ID { return event.ID{Ms: ms} }
	var s small
	want := func(what string, after, upTo uint64, yes bool) {
		t.Helper()
		if s.covers(id(after), id(upTo)) != yes {
			t.Errorf("%s: (%d, %d] is covered: %v", what, after, upTo, !yes)
		}
	}
	want("nothing was read", 1, 2, false)
	s.read(id(10), id(20), smallEntry)
	s.read(id(15), id(30), 1)
	want("read in pieces", 10, 30, true)
	want("before it", 9, 30, false)
	want("behind it", 10, 31, false)
	s.read(id(20), id(25), 1) // late
	want("read in pieces", 10, 30, true)
	s.read(id(30), id(40), smallEntry+1)
	want("with a large one", 10, 40, false)
	s.read(id(40), id(50), 1)
	want("after the large one", 40, 50, true)
	s.read(id(60), id(70), 1)
	want("over a gap", 40, 70, false)
	want("after the gap", 60, 70, true)
	s.read(id(50), id(80), 1) // from an older position: of another past, perhaps
	want("from before", 50, 80, true)
	s.end()
	want("after the end", 50, 80, false)
	s.read(id(65), id(90), 1)
	want("after the end", 50, 90, false)
	want("anew", 65, 90, true)
}

func TestOddPages(t *testing.T) {
	r := newRig(t, nil)
	for name, lua := range map[string]string{
		"nothing":            `return {}`,
		"no number":          `return {'x'}`,
		"a place beyond":     `return {1, {2, 0, {}}}`,
		"no place":           `return {1, {0, 0, {}}}`,
		"too few parts":      `return {1, {1, 0}}`,
		"no word about more": `return {1, {1, 'x', {}}}`,
		"an error":           `return {err = 'ERR x'}`,
	} {
		reply, err := r.byShard[0].home.do(t.Context(), callRead, r.byShard[0].home.b().Arbitrary("EVAL", lua, "0").Build())
		if err == nil {
			_, _, err = readSlices(reply)
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
