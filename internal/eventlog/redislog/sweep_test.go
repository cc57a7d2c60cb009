package redislog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"pgregory.net/rapid"
)

// An entry from the far future doesn't keep what comes behind it from being swept.
func TestFarFuture(t *testing.T) {
	r := newRig(t, shortWindow)
	far := xadd(t, r.redis, stream0, "99999999999999-7", "dev", "a", "type", "t", "payload", "p")
	behind := r.app("b")
	if behind.Ms != far.Ms {
		t.Fatalf("the entry behind it has ID %s", behind)
	}
	r.sweepTo(behind)
	r.want("swept", far, "b", event.WindowExpired)
	r.want("swept", behind, "b", "")
	next := r.app("b")
	r.sweepTo(next)
	r.redis.Do("DEL", stream0)
	st := r.state()
	if st.Head.Ms >= far.Ms {
		t.Errorf("the stream that replaced it begins at %s: the future goes on", st.Head)
	}
	r.want("from the future that is gone", behind, "b", event.LogRewound)
	r.app("c")
	r.want("the old notes went with the old record", st.Head, "b", "")
}

// Nothing inside the window is removed, whatever the server's clock did: marks
// that lie in its future count as made now.
func TestClockSetBack(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Window = time.Hour })
	first := r.app("a")
	head := r.state().Head
	future := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	r.redis.Do("HSET", record0, "marks", future+":"+head.String())
	if report := r.sweep(nil); report.Removed != 0 {
		t.Fatalf("%+v", report)
	}
	mark, _, _ := strings.Cut(r.redis.Do("HGET", record0, "marks").(string), ":")
	if ms, _ := strconv.ParseInt(mark, 10, 64); ms > time.Now().Add(time.Minute).UnixMilli() {
		t.Errorf("the mark is still in the future: nothing would be swept for a day")
	}
	past := strconv.FormatInt(time.Now().Add(-2*time.Hour).UnixMilli(), 10)
	r.redis.Do("HSET", record0, "marks", past+":"+first.String())
	r.app("b")
	if report := r.sweep(nil); report.Removed != 1 {
		t.Errorf("a mark older than the window removed %d entries, want 1", report.Removed)
	}
}

// Marks are bounded: at most marksInWindow a window, and an idle shard writes
// nothing at all.
func TestMarksAreFew(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Window = time.Hour })
	for range 50 {
		r.app("a")
		r.sweep(nil)
	}
	if n := strings.Count(r.redis.Do("HGET", record0, "marks").(string), ":"); n != 1 {
		t.Errorf("%d marks within a minute of an hour's window", n)
	}
	before := r.redis.Do("INFO", "persistence").(string)
	changes := func(info string) string {
		_, after, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		n, _, _ := strings.Cut(after, "\r")
		return n
	}
	for range 5 {
		r.sweep(nil)
		r.state()
		r.want("idle", r.state().Head, "a", "")
	}
	if now := changes(r.redis.Do("INFO", "persistence").(string)); now != changes(before) {
		t.Errorf("looking at an idle shard changed keys: %s, before %s", now, changes(before))
	}
}

func TestIdleShardsRaiseNoAlarm(t *testing.T) {
	r := newRig(t, shortWindow)
	founded := r.state().Founded
	check := func(when string, position event.ID) {
		t.Helper()
		if in := r.inspect(position); in.Reason != "" {
			t.Errorf("%s: the watchdog at %s says %q; state %+v", when, position, in.Reason, in.State)
		}
		r.want(when, position, "a", "")
	}
	check("empty", founded)
	r.sweep(nil)
	check("empty and swept", founded)
	last := r.app("a")
	r.sweepTo(last)
	check("all swept", last)
	r.sweep(nil)
	check("all swept, later", last)
	next := r.app("b")
	check("the last swept one, with a newer one", last)
	check("the newer one", next)
}

// A caller whose memory is wrong makes cursors doubtful, not complete.
func TestWrongMemory(t *testing.T) {
	for name, claimed := range map[string]int{"too few": 1, "too many": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, shortWindow)
			r.app("a")
			last := r.app("b")
			lie := recent(func(_ int, _, upTo event.ID) (map[string]event.ID, int, bool) {
				return map[string]event.ID{"b": upTo}, claimed, true
			})
			r.eventually(func() bool { r.sweep(lie); return !r.state().Swept.Less(last) })
			if st := r.state(); st.Since != st.Head {
				t.Errorf("the notes still count as complete from %s; state %+v", st.Since, st)
			}
			r.app("c")
			r.want("what the memory left out", event.ID{Ms: last.Ms - 1}, "a", event.WindowExpired)
		})
	}
}

type recent func(shard int, after, upTo event.ID) (map[string]event.ID, int, bool)

func (f recent) Notes(shard int, after, upTo event.ID) (map[string]event.ID, int, bool) {
	return f(shard, after, upTo)
}

// TestSweepSteps: however much is due, one step removes no more than it should.
func TestSweepSteps(t *testing.T) {
	r := newRig(t, shortWindow)
	const n = 5*sweepEntries + 17
	var commands [][]string
	for i := range n {
		commands = append(commands, []string{"XADD", stream0, "*", "dev", fmt.Sprint("d", i%50), "type", "t", "payload", "p"})
	}
	var all []event.ID
	for _, reply := range r.redis.Pipe(commands...) {
		id, err := event.ParseID(reply.(string))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	halves := func(name string, memory eventlog.Recent, to event.ID) {
		removed, steps := 0, 0
		r.eventually(func() bool {
			report := r.sweep(memory)
			if report.Removed > sweepEntries {
				t.Errorf("%s: one step removed %d", name, report.Removed)
			}
			if report.Removed > 0 {
				steps++
			}
			removed += report.Removed
			return !r.state().Swept.Less(to)
		})
		if steps < 2 {
			t.Errorf("%s: %d entries in %d steps", name, removed, steps)
		}
	}
	halves("read", nil, all[len(all)/2])
	halves("remembered", memoryOf(all), all[len(all)-1])
	st := r.state()
	if st.Since != st.Founded {
		t.Errorf("sweeping in steps broke the notes: %+v", st)
	}
	r.want("noted", all[len(all)-1], "d0", "")
	r.want("noted", st.Founded, "d0", event.WindowExpired)
}

// memoryOf remembers entries of 50 devices in turns.
func memoryOf(ids []event.ID) recent {
	return func(_ int, after, upTo event.ID) (map[string]event.ID, int, bool) {
		notes, n := make(map[string]event.ID), 0
		for i, id := range ids {
			if after.Less(id) && !upTo.Less(id) {
				notes[fmt.Sprint("d", i%50)] = id
				n++
			}
		}
		return notes, n, true
	}
}

// Two gateways that sweep at once note everything and take each other for nobody.
func TestTwoSweepers(t *testing.T) {
	r := newRig(t, shortWindow)
	other := open(t, r.opts)
	var ids []event.ID
	for i := range 100 {
		ids = append(ids, r.app(fmt.Sprint("d", i)))
	}
	r.eventually(func() bool {
		var wg sync.WaitGroup
		for _, l := range []*Log{r.Log, other} {
			wg.Go(func() {
				report, err := l.Sweep(context.Background(), 0, nil)
				if err != nil || report.Foreign != 0 {
					t.Errorf("%+v, %v", report, err)
				}
			})
		}
		wg.Wait()
		return !r.state().Swept.Less(ids[99])
	})
	for i, id := range ids {
		r.want("its own last one", id, fmt.Sprint("d", i), "")
		if i > 0 {
			r.want("the one before", ids[i-1], fmt.Sprint("d", i), event.WindowExpired)
		}
	}
}

// Notes leave when they are older than they are kept, after since has passed them.
func TestPrune(t *testing.T) {
	r := newRig(t, shortWindow)
	for i := range 700 { // more than a hash keeps in one piece
		r.app(fmt.Sprint("old-", i))
	}
	bound := r.app("old")
	r.sweepTo(bound)
	long := time.Now().Add(-eventlog.NotesKept - time.Hour).UnixMilli()
	r.redis.Do("HSET", record0, "days", fmt.Sprint(long, ":", bound))
	r.redis.Do("HSET", positions0, "", "7", "below", "1-0", "at", bound.String(), "above", bound.Next().String(), "odd", "no ID")
	pruned := 0
	r.eventually(func() bool {
		pruned += r.sweep(nil).Pruned
		return pruned >= 701
	})
	st := r.state()
	if st.Since.Less(bound) || st.Head.Less(st.Since) {
		t.Errorf("since is %s after notes up to %s were dropped", st.Since, bound)
	}
	r.want("the bound itself", st.Since, "old", "")
	r.want("below it nothing is known", event.ID{Ms: bound.Ms - 1, Seq: 999}, "nobody", event.WindowExpired)
	last := r.app("new")
	r.sweepTo(last)
	if left := r.redis.Do("HLEN", notes0); left != int64(2) { // with the field that shows that it is whole
		t.Errorf("%v notes are left, want 2", left)
	}
	r.want("noted after pruning", st.Since, "new", event.WindowExpired)
	r.want("noted after pruning", st.Since, "old", "")
	r.eventually(func() bool { // the walk may not have come to the positions yet
		r.sweep(nil)
		return r.redis.Do("HGET", record0, "prune") == ""
	})
	if left := r.redis.Do("HKEYS", positions0); slices.Contains(left.([]any), any("below")) || len(left.([]any)) != 4 {
		t.Errorf("positions of %v are left, want all but the one below the bound", left)
	}
}

// A note that was renewed between the look and the drop stays.
func TestPruneLooksAgain(t *testing.T) {
	r := newRig(t, nil)
	r.redis.Do("HSET", record0, "prune", "50-0")
	r.redis.Do("HSET", notes0, "old", "50-0", "renewed", "50-1")
	keys := []string{record0, notes0}
	for _, c := range []struct {
		bound string
		want  int64
	}{{"49-0", 0}, {"50-0", 1}} { // another bound is another sweep's
		reply, err := r.groups[0].home.eval(t.Context(), callSweep, pruneScript, keys, []string{"", c.bound, "1", "0", "old", "renewed"})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := reply.AsInt64(); n != c.want || err != nil {
			t.Errorf("with bound %s %d notes were dropped (%v), want %d", c.bound, n, err, c.want)
		}
	}
	if got := r.redis.Do("HGET", notes0, "renewed"); got != "50-1" {
		t.Errorf("the renewed note is %v", got)
	}
}

func TestBetween(t *testing.T) {
	part := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3), rapid.Uint64Range(^uint64(0)-3, ^uint64(0)))
	rapid.Check(t, func(t *rapid.T) {
		a := event.ID{Ms: part.Draw(t, "ams"), Seq: part.Draw(t, "aseq")}
		b := event.ID{Ms: part.Draw(t, "bms"), Seq: part.Draw(t, "bseq")}
		if b.Less(a) {
			a, b = b, a
		}
		steps := 0
		for low, high := a, b; low.Less(high); steps++ {
			m := between(low, high)
			if m.Less(low) || !m.Less(high) {
				t.Fatalf("between(%s, %s) = %s", low, high, m)
			}
			if m == low {
				break
			}
			high = m
		}
		if steps > 200 {
			t.Fatalf("%d halvings from %s to %s", steps, a, b)
		}
	})
}
