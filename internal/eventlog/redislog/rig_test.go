package redislog

import (
	"context"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// A rig is a log on a server of its own, whose shard 0 the test uses.
type rig struct {
	testing.TB
	*Log
	redis *testkit.Redis
	opts  Options
}

func newRig(t *testing.T, change func(*Options), server ...testkit.RedisOption) *rig {
	t.Helper()
	r := &rig{TB: t, redis: testkit.StartRedis(t, server...)}
	r.opts = testOptions(t, r.redis)
	if change != nil {
		change(&r.opts)
	}
	r.Log = open(t, r.opts)
	r.state() // founds the record, as a gateway does before it serves
	return r
}

func shortWindow(o *Options) { o.Window = 20 * time.Millisecond }

// app appends an event for a device to shard 0.
func (r *rig) app(device string) event.ID {
	r.Helper()
	res := r.try(context.Background(), device, nil)
	if res.Err != nil {
		r.Fatalf("Append: %v", res.Err)
	}
	return res.IDs[0]
}

func (r *rig) try(ctx context.Context, device string, once *eventlog.Once) eventlog.Result {
	return r.Append(ctx, []eventlog.Append{{
		Events: []event.Event{{Target: device, Type: "t", Payload: "payload for " + device}},
		Once:   once,
	}})[0]
}

// inspect asks about a position in shard 0.
func (r *rig) inspect(position event.ID) eventlog.Inspection {
	r.Helper()
	positions := make([]event.ID, r.Shards())
	positions[0] = position
	in, err := r.Inspect(context.Background(), 0, positions)
	if err != nil {
		r.Fatalf("Inspect: %v", err)
	}
	return in[0]
}

func (r *rig) state() eventlog.State {
	r.Helper()
	return r.inspect(event.ID{}).State
}

// judge asks for a device, with the broadcasts.
func (r *rig) judge(cursor event.ID, device string) event.Reason {
	r.Helper()
	reasons, _, err := r.Judge(context.Background(), 0, []eventlog.Question{
		{Cursor: cursor, Targets: []string{device, event.Broadcast}},
	})
	if err != nil {
		r.Fatalf("Judge: %v", err)
	}
	return reasons[0]
}

func (r *rig) want(what string, cursor event.ID, device string, want event.Reason) {
	r.Helper()
	if got := r.judge(cursor, device); got != want {
		r.Errorf("%s: cursor %s of %s is judged %q, want %q; state %+v", what, cursor, device, got, want, r.state())
	}
}

// sweepTo sweeps until id is gone and returns the sum of the reports.
func (r *rig) sweepTo(id event.ID) eventlog.SweepReport {
	r.Helper()
	var sum eventlog.SweepReport
	r.eventually(func() bool {
		report := r.sweep(nil)
		sum.Removed += report.Removed
		sum.Foreign += report.Foreign
		return !r.state().Swept.Less(id)
	})
	return sum
}

func (r *rig) sweep(recent eventlog.Recent) eventlog.SweepReport {
	r.Helper()
	report, err := r.Sweep(context.Background(), 0, recent)
	if err != nil {
		r.Fatalf("Sweep: %v", err)
	}
	return report
}

// eventually repeats a step every few milliseconds.
func (r *rig) eventually(reached func() bool) {
	r.Helper()
	patience := time.After(time.Minute) // against hangs; no speed is judged by it
	for !reached() {
		select {
		case <-patience:
			r.Fatal("not reached within a minute")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// judgeOne asks one question of any shard.
func (r *rig) judgeOne(s *shard, cursor event.ID, device string) (event.Reason, eventlog.State, error) {
	reasons, st, err := r.Judge(context.Background(), s.index, []eventlog.Question{{Cursor: cursor, Targets: []string{device}}})
	if err != nil {
		return "", st, err
	}
	return reasons[0], st, nil
}
