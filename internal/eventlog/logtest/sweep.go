package logtest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func sweepCases() []testCase {
	short := Options{Window: shortWindow}
	return []testCase{
		{name: "nothing inside the window", run: sweepNothing},
		{name: "age is known by marks", opts: short, run: sweepByMarks},
		{name: "counts what it removes, once", opts: short, run: sweepCounts},
		{name: "several sweepers at once", opts: short, run: sweepConcurrent},
		{name: "notes are exact", opts: short, run: sweepNotes},
		{name: "notes from the caller's memory", opts: short, run: sweepRecent},
		{name: "a memory with holes isn't used", opts: short, run: sweepRecentHoles},
		{name: "an idle shard stays as it is", opts: short, run: sweepIdle},
		{name: "an emptied shard goes on", opts: short, run: sweepEmptied},
		{name: "many entries in small steps", opts: short, run: sweepSteps},
	}
}

func sweepNothing(r *rig) {
	ids := r.appendN(0, 5)
	for range 5 {
		if report := r.sweep(0); report.Removed != 0 || report.More {
			r.Errorf("Sweep inside the window reports %+v", report)
		}
	}
	r.wantIDs(0, ids...)
}

// sweepByMarks: entries are old, but no mark says so yet.
func sweepByMarks(r *rig) {
	ids := r.appendN(0, 3)
	r.pass(r.opts.Window * 2)
	if report := r.sweep(0); report.Removed != 0 {
		r.Errorf("the first sweep removed %d entries by some clock", report.Removed)
	}
	r.wantIDs(0, ids...)
	if removed := r.sweepTo(0, ids[2]); removed != 3 {
		r.Errorf("removed %d, want 3", removed)
	}
}

func sweepCounts(r *rig) {
	ids := r.appendN(0, 7)
	if removed := r.sweepTo(0, ids[6]); removed != 7 {
		r.Errorf("removed %d entries, want 7", removed)
	}
	r.wantIDs(0)
	st := r.state(0)
	if st.Swept != ids[6] || st.Head != ids[6] {
		r.Errorf("Swept = %s, Head = %s, want both %s", st.Swept, st.Head, ids[6])
	}
	if st.Since != r.founded[0].Since || st.Founded != r.founded[0].Founded {
		r.Errorf("sweeping moved Since to %s and Founded to %s", st.Since, st.Founded)
	}
	if len(st.Breaks) != len(r.founded[0].Breaks) {
		r.Errorf("sweeping noted breaks: %+v", st.Breaks)
	}
}

func sweepConcurrent(r *rig) {
	ids := r.appendN(0, 20)
	var removed atomic.Int64
	r.eventually("swept", func() bool {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				report, err := r.Log.Sweep(r.ctx, 0, nil)
				if err != nil {
					r.Errorf("Sweep: %v", err)
				}
				if report.Foreign != 0 {
					r.Errorf("sweepers took each other for strangers: %+v", report)
				}
				removed.Add(int64(report.Removed))
			})
		}
		wg.Wait()
		return !r.state(0).Swept.Less(ids[19])
	})
	if removed.Load() != 20 {
		r.Errorf("the sweepers removed %d entries in all, want 20", removed.Load())
	}
	r.wantJudge("after six sweepers", "", 0, ids[19], r.device(0, 0))
}

// sweepNotes: long after the window the log still knows whom something is
// missing for, to the device.
func sweepNotes(r *rig) {
	a, b, c := r.device(0, 0), r.device(0, 1), r.device(0, 2)
	a1 := r.append(0, order(a, "1"))[0]
	b1 := r.append(0, order(b, "1"))[0]
	g1 := r.append(0, event.Event{Target: "@shop", Type: "t", Payload: "1"})[0]
	a2 := r.append(0, order(a, "2"))[0]
	founded := r.founded[0].Founded
	check := func(when string) {
		r.Helper()
		for _, q := range []struct {
			want    event.Reason
			cursor  event.ID
			targets []string
		}{
			{event.WindowExpired, founded, []string{a}},
			{event.WindowExpired, a1, []string{a}},
			{"", a2, []string{a}},
			{event.WindowExpired, a1, []string{b}},
			{"", b1, []string{b}},
			{"", g1, []string{b}},
			{"", founded, []string{c}},
			{"", a1, []string{c}},
			{event.WindowExpired, b1, []string{c, "@shop"}},
			{"", g1, []string{c, "@shop"}},
			{"", a1, []string{c, "@another"}},
			{event.WindowExpired, event.ID{Ms: 1}, []string{c}},
			{event.LogRewound, event.ID{Ms: a2.Ms + 1e9}, []string{c}},
		} {
			r.wantJudge(when, q.want, 0, q.cursor, q.targets...)
		}
	}
	r.sweepTo(0, a2)
	check("swept")
	live := r.append(0, order(a, "3"))[0]
	check("swept, with a live entry")
	r.wantJudge("held", "", 0, live, a)
	all := r.append(0, event.Event{Target: event.Broadcast, Type: "t", Payload: "1"})[0]
	check("a broadcast is held")
	r.sweepTo(0, all)
	r.wantJudge("a broadcast is gone", event.WindowExpired, 0, a2, c)
	r.wantJudge("a broadcast is gone", event.WindowExpired, 0, live, a)
	r.wantJudge("a broadcast is gone", "", 0, all, c)
	if r.Reopen != nil {
		r.Log = r.Reopen()
		r.wantJudge("reopened", event.WindowExpired, 0, a2, c)
		r.wantJudge("reopened", "", 0, all, a)
	}
}

// A memory is a Recent that the case fills by hand.
type memory struct {
	entries []eventlog.Entry
	from    event.ID // it holds all after from
	asked   atomic.Int64
}

func (m *memory) Notes(_ int, after, upTo event.ID) (map[string]event.ID, int, bool) {
	m.asked.Add(1)
	if after.Less(m.from) {
		return nil, 0, false
	}
	notes, n := map[string]event.ID{}, 0
	for _, e := range m.entries {
		if after.Less(e.ID) && !upTo.Less(e.ID) {
			notes[e.Event.Target] = event.Max(notes[e.Event.Target], e.ID)
			n++
		}
	}
	return notes, n, true
}

func (r *rig) sweepWith(m *memory, id event.ID) (removed int) {
	r.Helper()
	r.eventually("sweep with a memory", func() bool {
		report, err := r.Log.Sweep(r.ctx, 0, m)
		if err != nil {
			r.Fatalf("Sweep: %v", err)
		}
		removed += report.Removed
		return !r.state(0).Swept.Less(id)
	})
	if m.asked.Load() == 0 {
		r.Error("the sweep never asked the caller's memory")
	}
	return removed
}

func sweepRecent(r *rig) {
	a, b := r.device(0, 0), r.device(0, 1)
	ids := r.append(0, order(a, "1"), order(b, "1"), order(a, "2"))
	m := &memory{entries: r.all(0)}
	if removed := r.sweepWith(m, ids[2]); removed != 3 {
		r.Errorf("removed %d, want 3", removed)
	}
	r.wantJudge("noted from memory", event.WindowExpired, 0, ids[0], a)
	r.wantJudge("noted from memory", "", 0, ids[1], b)
	r.wantJudge("noted from memory", "", 0, ids[0], r.device(0, 2))
	r.wantIDs(0)
}

func sweepRecentHoles(r *rig) {
	a, b := r.device(0, 0), r.device(0, 1)
	ids := r.append(0, order(a, "1"), order(b, "1"))
	m := &memory{entries: r.all(0)[1:], from: ids[0]}
	if removed := r.sweepWith(m, ids[1]); removed != 2 {
		r.Errorf("removed %d, want 2", removed)
	}
	r.wantJudge("the memory began too late", event.WindowExpired, 0, r.founded[0].Founded, a)
	r.wantJudge("the memory began too late", event.WindowExpired, 0, ids[0], b)
}

func sweepIdle(r *rig) {
	for range 12 {
		if report := r.sweep(1); report.Removed != 0 || report.Foreign != 0 || report.More {
			r.Errorf("Sweep of an empty shard reports %+v", report)
		}
		r.pass(r.opts.Window / 4)
	}
	founded := r.founded[1].Founded
	r.wantJudge("empty and idle", "", 1, founded, r.device(1, 0))
	if in := r.inspectShard(1, founded); in.Reason != "" || in.State.Since != r.founded[1].Since {
		r.Errorf("Inspect of an idle shard = %+v", in)
	}
}

func sweepEmptied(r *rig) {
	ids := r.appendN(0, 3)
	r.sweepTo(0, ids[2])
	for range 6 {
		r.sweep(0)
		r.pass(r.opts.Window / 2)
	}
	r.wantJudge("the last swept entry", "", 0, ids[2], r.device(0, 0))
	if in := r.inspectShard(0, ids[2]); in.Reason != "" {
		r.Errorf("Inspect at the last swept entry = %+v, want no alarm", in)
	}
	next := r.appendN(0, 1)[0]
	if !ids[2].Less(next) {
		r.Errorf("an emptied shard issued %s after %s", next, ids[2])
	}
	r.wantJudge("the last swept entry", "", 0, ids[2], r.device(0, 0))
}

func sweepSteps(r *rig) {
	var events []event.Event
	for i := range 2500 {
		events = append(events, order(r.device(0, i%5), fmt.Sprint(i)))
	}
	ids := r.append(0, events...)
	removed, most := 0, 0
	r.eventually("all swept", func() bool {
		for {
			report := r.sweep(0)
			removed, most = removed+report.Removed, max(most, report.Removed)
			if !report.More {
				return !r.state(0).Swept.Less(ids[len(ids)-1])
			}
		}
	})
	if removed != len(ids) || most == len(ids) {
		r.Errorf("removed %d of %d, %d in the largest step", removed, len(ids), most)
	}
	for i := range 5 {
		r.wantJudge("swept", event.WindowExpired, 0, ids[len(ids)-7], r.device(0, i))
		r.wantJudge("swept", "", 0, ids[len(ids)-1], r.device(0, i))
	}
}
