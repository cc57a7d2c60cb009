package logtest

import (
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func judgeCases() []testCase {
	return []testCase{
		{name: "an empty shard", run: judgeEmpty},
		{name: "held, unknown, ahead", run: judgeHeld},
		{name: "many questions in one look", run: judgeMany},
		{name: "Inspect agrees", run: judgeInspect},
		{name: "suspect", run: judgeSuspect},
		{name: "the same loss reported again", run: judgeSuspectTwice},
		{name: "a suspect range is bounded", opts: Options{Window: shortWindow}, run: judgeSuspectFar},
		{name: "suspicion outlives the sweep", opts: Options{Window: shortWindow}, run: judgeSuspectSwept},
	}
}

func judgeEmpty(r *rig) {
	st := r.founded[2]
	if st.Head != st.Founded || st.Since != st.Founded {
		r.Errorf("a founded shard has state %+v, want Head and Since equal to Founded", st)
	}
	r.wantJudge("the founding", "", 2, st.Founded, r.device(2, 0))
	r.wantJudge("zero", event.WindowExpired, 2, event.ID{}, r.device(2, 0))
	r.wantJudge("before the founding", event.WindowExpired, 2, event.ID{Ms: st.Founded.Ms - 1, Seq: 7}, r.device(2, 0))
	r.wantJudge("ahead", event.LogRewound, 2, event.ID{Ms: st.Founded.Ms + 1e6}, r.device(2, 0))
	r.wantJudge("ahead", event.LogRewound, 2, event.MaxID, r.device(2, 0))
}

func judgeHeld(r *rig) {
	first := r.appendN(0, 1)[0]
	r.pass(5 * time.Millisecond)
	second := r.appendN(0, 1)[0]
	d := r.device(0, 0)
	r.wantJudge("held", "", 0, first, d)
	r.wantJudge("head", "", 0, second, d)
	r.wantJudge("the founding", "", 0, r.founded[0].Founded, d)
	r.wantJudge("zero", event.WindowExpired, 0, event.ID{}, d)
	r.wantJudge("ahead", event.LogRewound, 0, second.Next(), d)
	if unknown := first.Next(); unknown.Less(second) {
		r.wantJudge("an ID that was never issued", event.LogRewound, 0, unknown, d)
	}
	r.wantJudge("another shard's", event.LogRewound, 1, event.ID{Ms: first.Ms + 1e6}, r.device(1, 0))
}

func judgeMany(r *rig) {
	ids := r.appendN(3, 10)
	var questions []eventlog.Question
	for i := range 200 {
		questions = append(questions, eventlog.Question{Cursor: ids[i%10], Targets: []string{r.device(3, 0), "*"}})
	}
	questions = append(questions, eventlog.Question{Cursor: event.MaxID}, eventlog.Question{})
	reasons, st, err := r.Log.Judge(r.ctx, 3, questions)
	if err != nil || len(reasons) != len(questions) {
		r.Fatalf("Judge answered %d of %d, %v", len(reasons), len(questions), err)
	}
	for i, reason := range reasons[:200] {
		if reason != "" {
			r.Errorf("question %d: %q", i, reason)
		}
	}
	if reasons[200] != event.LogRewound || reasons[201] != event.WindowExpired {
		r.Errorf("the last two: %q", reasons[200:])
	}
	if st.Head != ids[9] || st.Founded != r.founded[3].Founded {
		r.Errorf("state %+v, want head %s", st, ids[9])
	}
	if _, st, err := r.Log.Judge(r.ctx, 3, nil); err != nil || st.Head != ids[9] {
		r.Errorf("Judge without questions = %+v, %v", st, err)
	}
}

func judgeInspect(r *rig) {
	if in := r.inspectShard(0, r.founded[0].Founded); in.Reason != "" {
		r.Errorf("at the founding: %+v", in)
	}
	before := r.inspectShard(0, r.founded[0].Founded).Added
	ids := r.appendN(0, 3)
	for _, id := range ids {
		if in := r.inspectShard(0, id); in.Added-before != uint64(len(ids)) {
			r.Errorf("%d entries were added, and Added has risen by %d", len(ids), in.Added-before)
		}
		if in := r.inspectShard(0, id); in.Reason != "" || in.State.Head != ids[2] {
			r.Errorf("at a held entry: %+v", in)
		}
	}
	if in := r.inspectShard(0, event.ID{Ms: ids[2].Ms + 1e6}); in.Reason != event.LogRewound {
		r.Errorf("ahead of the log: %+v", in)
	}
}

// lost stands for a position of a branch that is gone: above the head, soon
// to be passed by new IDs.
func lost(head event.ID) event.ID { return event.ID{Ms: head.Ms + 60_000, Seq: 3} }

func (r *rig) suspect(shard int, reach event.ID) eventlog.State {
	r.Helper()
	st, err := r.Log.Suspect(r.ctx, shard, reach)
	if err != nil {
		r.Fatalf("Suspect: %v", err)
	}
	if len(st.Breaks) == 0 {
		r.Fatalf("after Suspect(%s) the state has no break: %+v", reach, st)
	}
	return st
}

func judgeSuspect(r *rig) {
	d := r.device(0, 0)
	ids := r.appendN(0, 3)
	st := r.suspect(0, lost(ids[2]))
	b := st.Breaks[len(st.Breaks)-1]
	if b.Boundary.Compare(lost(ids[2])) <= 0 || st.Head.Less(b.Boundary) || b.Reason != event.LogRewound {
		r.Errorf("break %+v at head %s, want log-rewound with a new head above %s", b, st.Head, lost(ids[2]))
	}
	check := func(when string) {
		r.Helper()
		r.wantJudge(when+": from before", event.LogRewound, 0, ids[0], d)
		r.wantJudge(when+": the founding", event.LogRewound, 0, r.founded[0].Founded, d)
		// It may have lost what came after it, on the branch that is gone.
		r.wantJudge(when+": the head of then", event.LogRewound, 0, ids[2], d)
		r.wantJudge(when+": the new head", "", 0, b.Boundary, d)
		r.wantJudge(when+": the lost position", event.LogRewound, 0, lost(ids[2]), d)
		r.wantJudge(when+": another shard", "", 1, r.founded[1].Founded, r.device(1, 0))
	}
	check("suspected")
	next := r.appendN(0, 1)[0]
	check("gone on")
	r.wantJudge("an entry from after the break", "", 0, next, d)
	if in := r.inspectShard(0, next); in.Reason != "" {
		r.Errorf("the watchdog at an entry from after the break: %+v", in)
	}
	if r.Reopen != nil {
		r.Log = r.Reopen()
		check("reopened")
		r.wantJudge("reopened: an entry from after the break", "", 0, next, d)
	}
}

// judgeSuspectTwice: each gateway reports the loss it sees; whoever has gone on
// after the first report must not be sent back by the second.
func judgeSuspectTwice(r *rig) {
	ids := r.appendN(0, 2)
	reach := lost(ids[1])
	r.suspect(0, reach)
	between := r.appendN(0, 1)[0]
	r.appendN(0, 1)
	r.suspect(0, reach)
	r.suspect(0, event.ID{Ms: reach.Ms - 5})
	r.wantJudge("read after the first report", "", 0, between, r.device(0, 0))
	r.wantJudge("the lost position", event.LogRewound, 0, reach, r.device(0, 0))
}

func judgeSuspectFar(r *rig) {
	d := r.device(0, 0)
	ids := r.appendN(0, 1)
	st := r.suspect(0, event.MaxID)
	reach := st.Breaks[len(st.Breaks)-1].Reach
	if limit := ids[0].Ms + uint64((eventlog.ReachSlack + time.Minute).Milliseconds()); reach.Ms > limit {
		r.Errorf("a break reaches to %s: everything that will be swept stays in doubt for ever", reach)
	}
	next := r.appendN(0, 1)[0]
	r.wantJudge("after it", "", 0, next, d)
	r.sweepTo(0, next)
	r.wantJudge("after it, swept", "", 0, next, d)
	if in := r.inspectShard(0, next); in.Reason != "" {
		r.Errorf("the watchdog at a head that was swept: %+v", in)
	}
}

func judgeSuspectSwept(r *rig) {
	d := r.device(0, 0)
	ids := r.appendN(0, 2)
	r.suspect(0, lost(ids[1]))
	next := r.appendN(0, 1)[0]
	r.sweepTo(0, next)
	r.wantJudge("from before the break", event.LogRewound, 0, ids[0], d)
	r.wantJudge("the lost position", event.LogRewound, 0, lost(ids[1]), d)
	r.wantJudge("swept, from after the break", "", 0, next, d)
	r.wantJudge("held after it", "", 0, r.appendN(0, 1)[0], d)
}
