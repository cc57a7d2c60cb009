package logtest

import (
	"strings"
	"unicode/utf8"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func faultCases() []testCase {
	return []testCase{
		{name: "raw entries", run: faultRaw},
		{name: "malformed entries never stop a shard", opts: Options{MaxEventBytes: 1000}, run: faultKinds},
	}
}

func (r *rig) needRaw() {
	if r.AppendRaw == nil {
		r.Skip("nothing writes past this log's API")
	}
}

func faultRaw(r *rig) {
	r.needRaw()
	d := r.device(0, 0)
	r.AppendRaw(0, "payload", "{}", "unknown", "x", "dev", d, "type", "t", "key", "k")
	r.AppendRaw(0, "dev", "*", "type", "t", "payload", "")
	r.AppendRaw(0, "dev", "@g", "type", "t", "payload", "line\r\nline\x00")
	want := []event.Event{
		{Target: d, Type: "t", Payload: "{}", Key: "k"},
		{Target: "*", Type: "t"},
		{Target: "@g", Type: "t", Payload: "line\r\nline\x00"},
	}
	for i, e := range r.all(0) {
		if e.Fault != "" || e.Event != want[i] {
			r.Errorf("entry %d is %+v, want %+v", i, e, want[i])
		}
	}
}

func faultKinds(r *rig) {
	r.needRaw()
	d := r.device(0, 0)
	cases := []struct {
		fault  eventlog.Fault
		fields []string
	}{
		{eventlog.FaultNoField, []string{"type", "t", "payload", "p"}},
		{eventlog.FaultNoField, []string{"dev", d, "payload", "p"}},
		{eventlog.FaultNoField, []string{"dev", d, "type", "t"}},
		{eventlog.FaultNoField, []string{"some", "thing"}},
		{eventlog.FaultDevice, []string{"dev", "", "type", "t", "payload", "p"}},
		{eventlog.FaultDevice, []string{"dev", "**", "type", "t", "payload", "p"}},
		{eventlog.FaultDevice, []string{"dev", "@", "type", "t", "payload", "p"}},
		{eventlog.FaultDevice, []string{"dev", "a\nb", "type", "t", "payload", "p"}},
		{eventlog.FaultDevice, []string{"dev", strings.Repeat("d", 129), "type", "t", "payload", "p"}},
		{eventlog.FaultType, []string{"dev", d, "type", "a\ndata: forged", "payload", "p"}},
		{eventlog.FaultType, []string{"dev", d, "type", event.ResyncType, "payload", "p"}},
		{eventlog.FaultType, []string{"dev", d, "type", "", "payload", "p"}},
		{eventlog.FaultPayload, []string{"dev", d, "type", "t", "payload", "\xff\xfe"}},
		{eventlog.FaultOptional, []string{"dev", d, "type", "t", "payload", "p", "key", "a\rb"}},
		{eventlog.FaultTooLarge, []string{"dev", d, "type", "t", "payload", strings.Repeat("p", 1001)}},
		{"", []string{"dev", d, "type", "t", "payload", strings.Repeat("p", 1000)}},
	}
	var ids []event.ID
	for _, c := range cases {
		ids = append(ids, r.AppendRaw(0, c.fields...))
	}
	check := func(way string, entries []eventlog.Entry) {
		if len(entries) != len(cases) {
			r.Fatalf("%s gave %d entries, want %d", way, len(entries), len(cases))
		}
		for i, e := range entries {
			if e.ID != ids[i] || e.Fault != cases[i].fault {
				r.Errorf("%s: %q is %s with fault %q, want %s, %q", way, cases[i].fields, e.ID, e.Fault, ids[i], cases[i].fault)
			}
			r.checkFaulty(e, d)
		}
	}
	check("Range", r.all(0))
	var read []eventlog.Entry
	r.follow(func(b eventlog.Batch) bool {
		read = append(read, b.Entries...)
		return len(read) == len(cases)
	})
	check("Read", read)
}

// checkFaulty: what a faulty entry may still show (eventlog.Entry).
func (r *rig) checkFaulty(e eventlog.Entry, device string) {
	r.Helper()
	switch {
	case e.Fault == eventlog.FaultTooLarge:
		if e.Event.Target != device || e.Event.Payload != "" {
			r.Errorf("a too large entry shows target %q and %d bytes", e.Event.Target, len(e.Event.Payload))
		}
	case e.Fault != "" && e.Event != event.Event{}:
		r.Errorf("an entry with fault %q shows %+v", e.Fault, e.Event)
	case !utf8.ValidString(e.Event.Payload):
		r.Errorf("an entry without a fault isn't UTF-8")
	}
}
