package eventlog

import (
	"testing"
	"time"

	"downlink/internal/event"
)

// FuzzReadControl: whatever stands in an entry, what is read as an order is a
// valid one, and is read again as it was written.
func FuzzReadControl(f *testing.F) {
	for _, c := range []Control{
		{Kind: Disconnect, Device: "a", Reason: "r", Retry: time.Second}, {Kind: Revoke, Device: "매장-12"}, {Kind: Restore, Device: "a/b"},
	} {
		e := c.Event()
		f.Add(e.Type, e.Payload)
	}
	f.Add("disconnect", `{"device":"a","retry_ms":9223372036854775807}`)
	f.Add("destroy", `null`)
	f.Fuzz(func(t *testing.T, typ, payload string) {
		c, err := ReadControl(&event.Event{Target: event.ControlTarget, Type: typ, Payload: payload})
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("%q %q is read as %+v: %v", typ, payload, c, err)
		}
		e := c.Event()
		again, err := ReadControl(&e)
		if err != nil || again != c || e.Target != event.ControlTarget {
			t.Errorf("%+v is written as %+v, and read as %+v, %v", c, e, again, err)
		}
	})
}

func TestAnyOrderFitsItsEntry(t *testing.T) {
	long := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = '<' // six bytes in JSON
		}
		return string(b)
	}
	c := Control{Kind: Disconnect, Device: long(event.MaxDeviceBytes), Reason: long(event.MaxReasonBytes), Retry: MaxRetry}
	e := c.Event()
	if got, err := ReadControl(&e); err != nil || got != c {
		t.Errorf("%d bytes are read as %+v, %v", len(e.Payload), got, err)
	}
}
