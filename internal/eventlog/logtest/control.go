package logtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func controlCases() []testCase {
	return []testCase{
		{name: "an order is an entry of its shard", opts: Options{MaxEventBytes: 10}, run: controlEntry},
		{name: "revoke and restore change the list", run: controlList},
		{name: "saying it again stores nothing", run: controlTwice},
		{name: "one of many revokes at once counts", run: controlConcurrent},
		{name: "the list outlives its entries, which nobody misses", opts: Options{Window: shortWindow}, run: controlSwept},
		{name: "the list survives a restart", run: controlReopen},
		{name: "every interleaving leaves the list as it was ordered", run: controlModel},
		{name: "raw orders", run: controlRaw},
	}
}

func (r *rig) control(shard int, kind eventlog.ControlKind, device, reason string) eventlog.Receipt {
	r.Helper()
	receipt, err := r.Log.Control(r.ctx, shard, eventlog.Control{Kind: kind, Device: device, Reason: reason})
	if err != nil {
		r.Fatalf("%s of %s: %v", kind, device, err)
	}
	return receipt
}

// revoked reads a list, by device.
func (r *rig) revoked(shard int) (list []eventlog.Revocation, version eventlog.ListVersion) {
	r.Helper()
	got, err := r.Log.Revoked(r.ctx, shard)
	if err != nil {
		r.Fatalf("Revoked: %v", err)
	}
	versions, err := r.Log.RevokedVersions(r.ctx)
	if err != nil || len(versions) != r.opts.Shards {
		r.Fatalf("RevokedVersions: %v, %v", versions, err)
	}
	if versions[shard] != got.Version || got.Version.Devices != len(got.List) {
		r.Errorf("the list of %d devices has version %+v, among the versions it has %+v", len(got.List), got.Version, versions[shard])
	}
	slices.SortFunc(got.List, func(a, b eventlog.Revocation) int { return cmp.Compare(a.Device, b.Device) })
	return got.List, got.Version
}

func (r *rig) wantRevoked(shard int, want ...eventlog.Revocation) {
	r.Helper()
	got, _ := r.revoked(shard)
	if diff := gocmp.Diff(append([]eventlog.Revocation{}, want...), append([]eventlog.Revocation{}, got...)); diff != "" {
		r.Errorf("the list of shard %d (-want +got):\n%s", shard, diff)
	}
}

// controlEntry: it moves positions like any other, whatever limit events have.
func controlEntry(r *rig) {
	order := eventlog.Control{Kind: eventlog.Disconnect, Device: r.device(1, 0), Reason: "a \"reason\"", Retry: 1500 * time.Millisecond}
	before := r.append(1, event.Event{Target: order.Device, Type: "t", Payload: "1"})[0]
	receipt, err := r.Log.Control(r.ctx, 1, order)
	if err != nil || !receipt.Changed || !before.Less(receipt.ID) {
		r.Fatalf("Control = %+v, %v after %s", receipt, err, before)
	}
	after := r.append(1, event.Event{Target: order.Device, Type: "t", Payload: "2"})[0]
	r.wantIDs(1, before, receipt.ID, after)
	check := func(way string, e eventlog.Entry) {
		r.Helper()
		got, err := eventlog.ReadControl(&e.Event)
		if e.ID != receipt.ID || e.Fault != "" || e.Event.Target != event.ControlTarget || err != nil || got != order {
			r.Errorf("%s gives %+v, read as %+v, %v; want %+v", way, e, got, err, order)
		}
	}
	check("Range", r.all(1)[1])
	var read []eventlog.Entry
	r.follow(func(b eventlog.Batch) bool {
		read = append(read, b.Entries...)
		return len(read) == 3
	})
	check("Read", read[1])
	r.wantJudge("an order's entry as a cursor", "", 1, receipt.ID, order.Device)
	r.wantRevoked(1)
}

func controlList(r *rig) {
	a, b := r.device(0, 0), r.device(0, 1)
	if _, v := r.revoked(0); v != (eventlog.ListVersion{}) {
		r.Errorf("a list that was never changed has version %+v", v)
	}
	first := r.control(0, eventlog.Revoke, a, "stolen, and sold")
	second := r.control(0, eventlog.Revoke, b, "")
	r.wantRevoked(0, eventlog.Revocation{Device: a, ID: first.ID, Reason: "stolen, and sold"}, eventlog.Revocation{Device: b, ID: second.ID})
	r.wantRevoked(1)
	_, before := r.revoked(0)
	third := r.control(0, eventlog.Restore, a, "found")
	r.wantRevoked(0, eventlog.Revocation{Device: b, ID: second.ID})
	_, after := r.revoked(0)
	if want := (eventlog.ListVersion{Born: first.ID, Last: third.ID, Changes: 3, Devices: 1}); after != want {
		r.Errorf("version %+v, want %+v", after, want)
	}
	branch := after
	branch.Last = second.ID
	if before.Lost(after) || !after.Lost(before) || !after.Lost(eventlog.ListVersion{}) || !after.Lost(branch) || after.Lost(after) {
		r.Errorf("Lost: from %+v to %+v", before, after)
	}
	r.wantIDs(0, first.ID, second.ID, third.ID)
}

func controlTwice(r *rig) {
	d := r.device(0, 0)
	if got := r.control(0, eventlog.Restore, d, ""); got != (eventlog.Receipt{}) {
		r.Errorf("restoring what isn't revoked: %+v", got)
	}
	first := r.control(0, eventlog.Revoke, d, "one")
	if got := r.control(0, eventlog.Revoke, d, "another"); got != (eventlog.Receipt{ID: first.ID}) {
		r.Errorf("revoking again: %+v, want the ID %s of the first", got, first.ID)
	}
	r.wantRevoked(0, eventlog.Revocation{Device: d, ID: first.ID, Reason: "one"})
	lifted := r.control(0, eventlog.Restore, d, "")
	if got := r.control(0, eventlog.Restore, d, ""); got != (eventlog.Receipt{}) {
		r.Errorf("restoring again: %+v", got)
	}
	again := r.control(0, eventlog.Disconnect, d, "")
	twice := r.control(0, eventlog.Disconnect, d, "")
	r.wantIDs(0, first.ID, lifted.ID, again.ID, twice.ID)
}

func controlConcurrent(r *rig) {
	d := r.device(0, 0)
	receipts := make([]eventlog.Receipt, 24)
	var wg sync.WaitGroup
	for i := range receipts {
		wg.Go(func() { receipts[i], _ = r.Log.Control(r.ctx, 0, eventlog.Control{Kind: eventlog.Revoke, Device: d}) })
	}
	wg.Wait()
	changed := 0
	for _, receipt := range receipts {
		if receipt.ID.IsZero() || receipt.ID != receipts[0].ID {
			r.Errorf("callers got %s and %s", receipt.ID, receipts[0].ID)
		}
		if receipt.Changed {
			changed++
		}
	}
	if changed != 1 {
		r.Errorf("%d callers were told that they revoked it, want 1", changed)
	}
	r.wantIDs(0, receipts[0].ID)
}

// controlSwept: a revocation lasts longer than the window, and an order that
// leaves the window makes nobody resync.
func controlSwept(r *rig) {
	d, other := r.device(0, 0), r.device(0, 1)
	cursor := r.append(0, order(other, "p"))[0]
	first := r.control(0, eventlog.Revoke, d, "")
	last := r.control(0, eventlog.Disconnect, other, "")
	if removed := r.sweepTo(0, last.ID); removed != 3 {
		r.Errorf("%d entries were swept, want 3", removed)
	}
	r.wantRevoked(0, eventlog.Revocation{Device: d, ID: first.ID})
	r.wantJudge("an order was swept", "", 0, cursor, other)
	r.wantJudge("its own order was swept", "", 0, cursor, d)
	if got := r.control(0, eventlog.Revoke, d, ""); got.Changed || got.ID != first.ID {
		r.Errorf("revoking again after the sweep: %+v", got)
	}
}

func controlReopen(r *rig) {
	if r.Reopen == nil {
		r.Skip("this log can't be reopened by the harness")
	}
	d := r.device(0, 0)
	first := r.control(0, eventlog.Revoke, d, "why")
	_, before := r.revoked(0)
	r.Log = r.Reopen()
	r.wantRevoked(0, eventlog.Revocation{Device: d, ID: first.ID, Reason: "why"})
	if _, after := r.revoked(0); after != before {
		r.Errorf("version %+v after a restart, was %+v", after, before)
	}
}

// controlModel holds the list against a map, and each receipt against what the
// map said before.
func controlModel(r *rig) {
	var devices []string
	for i := range 3 {
		devices = append(devices, r.device(0, i))
	}
	listed := map[string]bool{}
	changes, reopened := uint64(0), 0
	rapid.Check(r.T, func(t *rapid.T) {
		for range rapid.IntRange(1, 6).Draw(t, "orders") {
			device := rapid.SampledFrom(devices).Draw(t, "device")
			kind := rapid.SampledFrom(eventlog.ControlKinds()).Draw(t, "kind")
			got := r.control(0, kind, device, "")
			want := kind == eventlog.Disconnect || listed[device] != (kind == eventlog.Revoke)
			if got.Changed != want {
				t.Fatalf("%s of %s, revoked %v before: changed %v", kind, device, listed[device], got.Changed)
			}
			if kind != eventlog.Disconnect && want {
				listed[device] = kind == eventlog.Revoke
				changes++
			}
		}
		if r.Reopen != nil && reopened < 5 && rapid.IntRange(0, 9).Draw(t, "reopen") == 0 {
			reopened++
			r.Log = r.Reopen()
		}
		list, version := r.revoked(0)
		if version.Changes != changes {
			t.Fatalf("%d changes, the version says %d", changes, version.Changes)
		}
		for _, d := range devices {
			on := slices.ContainsFunc(list, func(v eventlog.Revocation) bool { return v.Device == d })
			if on != listed[d] {
				t.Fatalf("%s is on the list: %v, want %v", d, on, listed[d])
			}
		}
	})
}

func controlRaw(r *rig) {
	r.needRaw()
	d := r.device(0, 0)
	good := r.AppendRaw(0, "dev", event.ControlTarget, "type", "disconnect", "payload", fmt.Sprintf(`{"device":%q,"more":1}`, d))
	bad := [][2]string{
		{"disconnect", ""}, {"disconnect", "null"}, {"disconnect", "{}"}, {"disconnect", `{"device":"@g"}`},
		{"disconnect", `{"device":"*"}`}, {"disconnect", `{"device":"a","retry_ms":3600001}`},
		{"disconnect", `{"device":"a","retry_ms":-1}`}, {"disconnect", `{"device":"a","retry_ms":9223372036854775807}`},
		{"disconnect", `{"device":"a","reason":"a\nb"}`}, {"disconnect", "{\"device\":\"a\xff\"}"},
		{"disconnect", `{"device":"a"` + strings.Repeat(" ", eventlog.MaxControlBytes) + `}`},
		{"revoke", `{"device":"a","retry_ms":1}`}, {"destroy", `{"device":"a"}`}, {"resync", `{"device":"a"}`},
	}
	for _, b := range bad {
		r.AppendRaw(0, "dev", event.ControlTarget, "type", b[0], "payload", b[1])
	}
	entries := r.all(0)
	if len(entries) != 1+len(bad) {
		r.Fatalf("%d entries", len(entries))
	}
	if c, err := eventlog.ReadControl(&entries[0].Event); entries[0].ID != good || entries[0].Fault != "" || err != nil || c.Device != d {
		r.Errorf("a raw order: %+v is read as %+v, %v", entries[0], c, err)
	}
	for i, e := range entries[1:] {
		if e.Fault != eventlog.FaultControl || e.Event != (event.Event{}) {
			r.Errorf("%q: fault %q, event %+v", bad[i], e.Fault, e.Event)
		}
	}
	r.wantRevoked(0) // the list is what counts
}
