package session

import (
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/shard"
)

func TestView(t *testing.T) {
	r := newRig(t, roomy)
	v := r.s.View()
	if v.Cursor != (event.ID{Ms: 1000}) || v.Pending != 0 || v.Address != "192.0.2.1:4711" || v.Protocol != "HTTP/1.1" || v.Credential != "" || !v.Expires.IsZero() || v.JSON {
		t.Errorf("%+v", v)
	}
	since := time.Date(2026, 11, 30, 9, 0, 0, 999, time.UTC)
	r.s.Know(Facts{Since: since, Expires: since.Add(time.Hour), Credential: "jwt"})
	first := r.event("one")
	r.event("two")
	v = r.s.View()
	if !v.Since.Equal(since.Truncate(time.Second)) || v.Expires.Sub(v.Since) != time.Hour || v.Credential != "jwt" || v.Pending != 2 || v.Bytes == 0 || v.Oldest != first || v.Ended != "" {
		t.Errorf("%+v", v)
	}
	r.s.Know(Facts{Since: since, Expires: time.Unix(1<<33, 0), Credential: "jwt"})
	if v = r.s.View(); !v.Expires.IsZero() {
		t.Errorf("after the year 2106: %v", v.Expires)
	}
	r.s.End(Draining)
	if v = r.s.View(); v.Ended != Draining {
		t.Errorf("%+v", v)
	}
}

// TestJSON: another form of the same.
func TestJSON(t *testing.T) {
	o := roomy
	o.JSON = true
	r := newRig(t, o)
	r.event("one")
	if got, want := r.next(1000), `{"id":"1000-1","type":"t","data":"one"}`; got != want {
		t.Errorf("got %s", got)
	}
	r.dispatch(event.Event{Target: "a", Type: "t"}, eventlog.FaultTooLarge)
	if got, want := r.next(1000), `{"id":"1000-2","type":"resync","data":"{\"reason\":\"event-too-large\",\"after_ms\":0}"}`; got != want {
		t.Errorf("got %s", got)
	}
	r.shards.Reset(0, event.ID{Ms: 2000}, event.LogRewound)
	if got, want := r.next(1000), `{"id":"2000-0","type":"resync","data":"{\"reason\":\"log-rewound\",\"after_ms\":0}"}`; got != want {
		t.Errorf("got %s", got)
	}
}

// TestAdvance: the cursor moves with the shard where nothing lies between.
func TestAdvance(t *testing.T) {
	r := newRig(t, roomy)
	if at, moved := r.s.Advance(); moved {
		t.Errorf("to %v, where it is", at)
	}
	other := r.dispatch(event.Event{Target: "b", Type: "t"}, "")
	if at, moved := r.s.Advance(); !moved || at != other || r.s.Cursor() != other || !r.s.Live() {
		t.Errorf("%v %v, cursor %v", at, moved, r.s.Cursor())
	}
	r.event("one")
	if at, moved := r.s.Advance(); moved {
		t.Errorf("to %v, past what is pending", at)
	}
	waiting := New("b", &r.woken, &Options{MaxPending: roomy.MaxPending, MaxBytes: roomy.MaxBytes})
	if err := waiting.Attach(r.shards.Of("b"), nil, shard.Start{Cursor: event.ID{Ms: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, moved := waiting.Advance(); moved || waiting.Live() {
		t.Error("it moved without knowing what it has missed")
	}
}
