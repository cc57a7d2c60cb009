package logtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// patience bounds every wait of a case; a log that needs longer hangs, however
// busy the machine is.
const patience = time.Minute

// A rig is a fresh log with the record of every shard founded, as a gateway
// does before it serves, and the short words that the cases are written in.
type rig struct {
	*testing.T
	Harness
	opts    Options
	ctx     context.Context
	founded []eventlog.State // by shard, before anything was appended
}

func newRig(t *testing.T, open Open, o Options) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	r := &rig{T: t, Harness: open(t, o), opts: o, ctx: ctx}
	t.Cleanup(func() {
		if err := r.Log.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if got := r.Log.Shards(); got != o.Shards {
		t.Fatalf("Shards() = %d, want %d", got, o.Shards)
	}
	r.founded = make([]eventlog.State, o.Shards)
	for g, shards := range r.Log.Groups() {
		for i, in := range r.inspect(g, make([]event.ID, len(shards))) {
			r.founded[shards[i]] = in.State
		}
	}
	return r
}

// device names the n-th device of a shard.
func (r *rig) device(shard, n int) string {
	for i := 0; ; i++ {
		d := fmt.Sprintf("pos-%d", i)
		if event.Shard(d, r.opts.Shards) != shard {
			continue
		}
		if n == 0 {
			return d
		}
		n--
	}
}

func order(device, payload string) event.Event {
	return event.Event{Target: device, Type: "order.push", Payload: payload}
}

// append stores events in a shard and fails the case if it can't.
func (r *rig) append(shard int, events ...event.Event) []event.ID {
	r.Helper()
	res := r.appendOnce(shard, nil, events...)
	if res.Err != nil {
		r.Fatalf("Append to shard %d: %v", shard, res.Err)
	}
	if len(res.IDs) != len(events) {
		r.Fatalf("Append of %d events answered %d IDs", len(events), len(res.IDs))
	}
	return res.IDs
}

func (r *rig) appendOnce(shard int, once *eventlog.Once, events ...event.Event) eventlog.Result {
	r.Helper()
	res := r.Log.Append(r.ctx, []eventlog.Append{{Shard: shard, Events: events, Once: once}})
	if len(res) != 1 {
		r.Fatalf("Append answered %d results for one request", len(res))
	}
	return res[0]
}

// appendN stores n events, one call each, so that their IDs are of n moments.
func (r *rig) appendN(shard, n int) []event.ID {
	r.Helper()
	var ids []event.ID
	for i := range n {
		ids = append(ids, r.append(shard, order(r.device(shard, 0), fmt.Sprintf("payload %d", i)))...)
	}
	return ids
}

func (r *rig) inspect(group int, positions []event.ID) []eventlog.Inspection {
	r.Helper()
	in, err := r.Log.Inspect(r.ctx, group, positions)
	if err != nil {
		r.Fatalf("Inspect: %v", err)
	}
	if len(in) != len(positions) {
		r.Fatalf("Inspect of %d positions answered %d", len(positions), len(in))
	}
	return in
}

// inspectShard inspects one shard at a position.
func (r *rig) inspectShard(shard int, position event.ID) eventlog.Inspection {
	r.Helper()
	for g, shards := range r.Log.Groups() {
		for i, s := range shards {
			if s == shard {
				positions := make([]event.ID, len(shards))
				positions[i] = position
				return r.inspect(g, positions)[i]
			}
		}
	}
	r.Fatalf("no group holds shard %d", shard)
	return eventlog.Inspection{}
}

func (r *rig) state(shard int) eventlog.State {
	r.Helper()
	return r.inspectShard(shard, event.ID{}).State
}

// judge asks for one device and its further targets.
func (r *rig) judge(shard int, cursor event.ID, targets ...string) event.Reason {
	r.Helper()
	reasons, _, err := r.Log.Judge(r.ctx, shard, []eventlog.Question{
		{Cursor: cursor, Targets: append([]string{event.Broadcast}, targets...)},
	})
	if err != nil || len(reasons) != 1 {
		r.Fatalf("Judge = %v, %v", reasons, err)
	}
	return reasons[0]
}

func (r *rig) wantJudge(what string, want event.Reason, shard int, cursor event.ID, targets ...string) {
	r.Helper()
	if got := r.judge(shard, cursor, targets...); got != want {
		r.Errorf("%s: cursor %s of %v is judged %q, want %q\nstate: %+v",
			what, cursor, targets, got, want, r.state(shard))
	}
}

// all reads a shard whole.
func (r *rig) all(shard int) []eventlog.Entry {
	r.Helper()
	page, err := r.Log.Range(r.ctx, shard, event.ID{}, r.state(shard).Head, 1<<30)
	if err != nil {
		r.Fatalf("Range: %v", err)
	}
	return page.Entries
}

// eventually repeats a step until it says that the state is reached, letting
// time pass between the tries.
func (r *rig) eventually(what string, reached func() bool) {
	r.Helper()
	deadline := time.Now().Add(patience)
	for !reached() {
		if time.Now().After(deadline) {
			r.Fatalf("not within %v: %s", patience, what)
		}
		r.pass(r.opts.Window / 16)
	}
}

// pass lets the log's clock go on by d at least.
func (r *rig) pass(d time.Duration) {
	if r.Advance != nil {
		r.Advance(d)
		return
	}
	select {
	case <-time.After(min(d, 2*shortWindow)):
	case <-r.ctx.Done():
	}
}

// sweep does one step.
func (r *rig) sweep(shard int) eventlog.SweepReport {
	r.Helper()
	report, err := r.Log.Sweep(r.ctx, shard, nil)
	if err != nil {
		r.Fatalf("Sweep: %v", err)
	}
	return report
}

// sweepTo sweeps until everything up to id is removed, and counts.
func (r *rig) sweepTo(shard int, id event.ID) (removed int) {
	r.Helper()
	r.eventually("sweep to "+id.String(), func() bool {
		removed += r.sweep(shard).Removed
		return !r.state(shard).Swept.Less(id)
	})
	return removed
}
