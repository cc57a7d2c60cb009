package logtest

import (
	"errors"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func lifeCases() []testCase {
	return []testCase{
		{name: "restart keeps everything", run: lifeReopen},
		{name: "Close ends a waiting read", run: lifeCloseEndsRead},
		{name: "calls after Close", run: lifeClosed},
	}
}

func lifeReopen(r *rig) {
	if r.Reopen == nil {
		r.Skip("this log can't be reopened by the harness")
	}
	d := r.device(0, 0)
	ids := r.appendN(0, 5)
	r.Log = r.Reopen()
	r.wantIDs(0, ids...)
	st := r.state(0)
	if st.Founded != r.founded[0].Founded || st.Since != r.founded[0].Since || st.Head != ids[4] {
		r.Errorf("state after a restart %+v, before %+v, head %s", st, r.founded[0], ids[4])
	}
	if empty := r.state(1); empty.Head != r.founded[1].Head {
		r.Errorf("an empty shard's head is %s after a restart, was %s", empty.Head, r.founded[1].Head)
	}
	r.wantJudge("a restart", "", 0, ids[0], d)
	r.wantJudge("a restart", "", 0, r.founded[0].Founded, d)
	r.wantJudge("a restart", "", 1, r.founded[1].Founded, r.device(1, 0))
	next := r.appendN(0, 1)[0]
	if !ids[4].Less(next) {
		r.Errorf("after a restart the shard issued %s after %s", next, ids[4])
	}
	r.wantJudge("a restart, then an entry", "", 0, ids[2], d)
	r.wantIDs(0, append(ids, next)...)
}

func lifeCloseEndsRead(r *rig) {
	t := r.tails()[0]
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := t.next(r.ctx, r); err != nil {
				ended <- err
				return
			}
		}
	}()
	r.pass(20 * time.Millisecond)
	if err := r.Log.Close(); err != nil {
		r.Errorf("Close: %v", err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, eventlog.ErrClosed) {
			r.Errorf("the waiting read ended with %v, want ErrClosed", err)
		}
	case <-time.After(patience):
		r.Fatal("Close leaves a read waiting")
	}
}

func lifeClosed(r *rig) {
	groups := r.Log.Groups()
	for range 2 {
		if err := r.Log.Close(); err != nil {
			r.Fatalf("Close: %v", err)
		}
	}
	want := func(call string, err error) {
		r.Helper()
		if !errors.Is(err, eventlog.ErrClosed) {
			r.Errorf("%s after Close: %v, want ErrClosed", call, err)
		}
	}
	after := make([]event.ID, len(groups[0]))
	want("Append", r.appendOnce(0, nil, order(r.device(0, 0), "p")).Err)
	_, err := r.Log.Read(r.ctx, 0, after)
	want("Read", err)
	_, err = r.Log.Inspect(r.ctx, 0, after)
	want("Inspect", err)
	_, err = r.Log.Suspect(r.ctx, 0, event.MaxID)
	want("Suspect", err)
	_, err = r.Log.Range(r.ctx, 0, event.ID{}, event.MaxID, 1)
	want("Range", err)
	_, _, err = r.Log.Judge(r.ctx, 0, nil)
	want("Judge", err)
	_, err = r.Log.Sweep(r.ctx, 0, nil)
	want("Sweep", err)
	_, err = r.Log.Control(r.ctx, 0, eventlog.Control{Kind: eventlog.Revoke, Device: r.device(0, 0)})
	want("Control", err)
	_, err = r.Log.Revoked(r.ctx, 0)
	want("Revoked", err)
	_, err = r.Log.RevokedVersions(r.ctx)
	want("RevokedVersions", err)
	_, err = r.Log.Claim(r.ctx, 0, "name", time.Hour)
	want("Claim", err)
}
