package filelog

import (
	"fmt"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// TestClockGoesBack: nothing is lost, and IDs rise.
func TestClockGoesBack(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Window = time.Minute
	o.Now = func() time.Time { return c.now().Round(0) } // without a monotonic reading: a clock that is set
	l := open(t, o)
	first := put(t, l, 0, "1")[0]
	sweepAll(t, l, 0) // a mark
	c.move(-10 * time.Hour)
	second := put(t, l, 0, "2")[0]
	if !first.Less(second) {
		t.Fatalf("IDs fall with the clock: %s, %s", first, second)
	}
	restart := func() {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, o)
	}
	restart()
	third := put(t, l, 0, "3")[0]
	if !second.Less(third) {
		t.Fatalf("IDs fall with a restart: %s, %s", second, third)
	}
	sweepAll(t, l, 0)
	c.move(o.Window / 2)
	sweepAll(t, l, 0)
	if st := stateOf(t, l, 0); first.Compare(st.Swept) <= 0 {
		t.Fatalf("an entry was swept inside the window: %+v", st)
	}
	for _, id := range []event.ID{first, second, third} {
		if got := judge(t, l, 0, id, "pos-1"); got != "" {
			t.Errorf("cursor %s is judged %q", id, got)
		}
	}
	// And what is due goes, although the first mark lies in the future.
	c.move(o.Window)
	sweepAll(t, l, 0)
	if st := stateOf(t, l, 0); st.Swept != third {
		t.Errorf("Swept = %s an age after the last mark, want %s", st.Swept, third)
	}
}

// TestNotesArePruned: after NotesKept the notes go, and Since rises to exactly
// what was pruned: nobody else comes into doubt.
func TestNotesArePruned(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Now, o.Window = c.now, time.Minute
	l := open(t, o)
	founded := stateOf(t, l, 0).Founded
	sweep := func(id event.ID) {
		t.Helper()
		for i := 0; stateOf(t, l, 0).Swept.Less(id); i++ {
			if i > 100 {
				t.Fatalf("%s isn't swept", id)
			}
			sweepAll(t, l, 0)
			c.move(o.Window / 4)
		}
		sweepAll(t, l, 0)
	}
	old := put(t, l, 0, "old", "older than a week")[1]
	sweep(old)
	c.move(2 * 24 * time.Hour)
	sweepAll(t, l, 0)
	recent := put(t, l, 0, "recent")[0]
	sweep(recent)

	c.move(eventlog.NotesKept - 3*24*time.Hour)
	if n := sweepAll(t, l, 0); n != 0 || stateOf(t, l, 0).Since != founded {
		t.Errorf("%d notes were pruned early; Since %s", n, stateOf(t, l, 0).Since)
	}
	c.move(25 * time.Hour)
	sweepAll(t, l, 0)
	st := stateOf(t, l, 0)
	if st.Since != old {
		t.Fatalf("Since = %s, want the last entry that was gone a week ago, %s", st.Since, old)
	}
	for _, q := range []struct {
		cursor event.ID
		target string
		want   event.Reason
	}{
		{founded, "pos-2", event.WindowExpired},
		{old, "pos-2", ""},
		{old, "pos-1", event.WindowExpired}, // recent is noted still
		{recent, "pos-1", ""},
	} {
		if got := judge(t, l, 0, q.cursor, q.target); got != q.want {
			t.Errorf("cursor %s of %s is judged %q, want %q", q.cursor, q.target, got, q.want)
		}
	}
	c.move(eventlog.NotesKept + 25*time.Hour)
	if n := sweepAll(t, l, 0); n != 1 {
		t.Errorf("%d notes were pruned at last, want 1", n)
	}
	if st := stateOf(t, l, 0); st.Since != recent {
		t.Errorf("Since = %s, want %s", st.Since, recent)
	}
}

func TestManyNotesArePruned(t *testing.T) {
	const devices = 2*stepEntries + 10
	c := &clock{}
	o := testOptions(t)
	o.Now, o.Window = c.now, time.Minute
	l := open(t, o)
	a := eventlog.Append{Shard: 0}
	for i := range devices {
		a.Events = append(a.Events, event.Event{Target: fmt.Sprint("pos-", i), Type: "t"})
	}
	if res := l.Append(t.Context(), []eventlog.Append{a})[0]; res.Err != nil {
		t.Fatal(res.Err)
	}
	pruned := 0
	for range 12 {
		c.move(24 * time.Hour)
		pruned += sweepAll(t, l, 0)
	}
	if pruned != devices {
		t.Errorf("%d notes were pruned, want %d", pruned, devices)
	}
}

// TestIdempotencyKeysLeave: with their entries, and not while newer entries
// stand on the key.
func TestIdempotencyKeysLeave(t *testing.T) {
	t.Parallel()
	c := &clock{}
	o := testOptions(t)
	o.Now, o.Window = c.now, time.Minute
	l := open(t, o)
	once := func(key string) eventlog.Result {
		return l.Append(t.Context(), []eventlog.Append{{
			Events: []event.Event{{Target: "pos-1", Type: "t"}},
			Once:   &eventlog.Once{Scope: "s", Key: key, Fingerprint: "f"},
		}})[0]
	}
	for i := range stepEntries + 5 {
		if res := once(fmt.Sprint(i)); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	for range 8 {
		sweepAll(t, l, 0)
		c.move(o.Window / 5)
		once("again") // expires, and is renewed, while the sweep goes on
	}
	renewed := once("again")
	if !renewed.Repeated {
		t.Errorf("a key that was renewed inside the window isn't known: %+v", renewed)
	}
	for range 8 {
		c.move(o.Window)
		sweepAll(t, l, 0)
	}
	it, err := l.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		switch it.Key()[0] {
		case oncePrefix, expiryPrefix, entryPrefix:
			t.Fatalf("key %q is left behind", it.Key())
		}
	}
}

func TestMarksAreBounded(t *testing.T) {
	var marks []mark
	for i := range 10 * maxMarks {
		marks, _ = addMark(marks, mark{At: uint64(i), ID: event.ID{Ms: uint64(i)}}, time.Millisecond, maxMarks)
	}
	if len(marks) != maxMarks || marks[maxMarks-1].At != 10*maxMarks-1 {
		t.Errorf("%d marks, the last of %d", len(marks), marks[len(marks)-1].At)
	}
	if _, added := addMark(marks, mark{At: 1e6, ID: marks[maxMarks-1].ID}, time.Millisecond, maxMarks); added {
		t.Error("an idle shard's sweep writes marks")
	}
}

func TestDue(t *testing.T) {
	marks := []mark{{At: 500, ID: event.ID{Ms: 1}}, {At: 100, ID: event.ID{Ms: 2}}, {At: 200, ID: event.ID{Ms: 3}}}
	for now, want := range map[uint64]uint64{0: 0, 149: 0, 150: 2, 249: 2, 250: 3, 1000: 3} {
		if got := due(marks, now, 50*time.Millisecond); got.Ms != want {
			t.Errorf("due at %d = %d, want %d", now, got.Ms, want)
		}
	}
}

// TestMarksAreSpaced: however often the sweepers come, a window has some sixty
// marks, and what they cost is small.
func TestMarksAreSpaced(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Now = c.now
	l := open(t, o)
	for range 300 {
		put(t, l, 0, "p")
		sweepAll(t, l, 0)
		c.move(o.Window / 300)
	}
	rec, _ := l.shards[0].look()
	if n := len(rec.Marks); n < 50 || n > 62 {
		t.Errorf("a window has %d marks, want some 60", n)
	}
}

// TestSamePlanTwice: two sweepers that have worked out the same step take it
// once.
func TestSamePlanTwice(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Now, o.Window = c.now, time.Minute
	l := open(t, o)
	put(t, l, 0, "1", "2", "3")
	sweepAll(t, l, 0)
	c.move(2 * o.Window)
	p, err := l.plan(l.shards[0], nil)
	if err != nil || p.entries != 3 {
		t.Fatalf("plan %+v, %v", p, err)
	}
	for i, want := range []eventlog.SweepReport{{Removed: 3}, {More: true}} {
		err := l.do(t.Context(), func() error {
			got, err := l.step(l.shards[0], p)
			if got != want {
				t.Errorf("step %d reports %+v, want %+v", i, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
