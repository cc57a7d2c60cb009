package frame

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/event"
)

// FuzzJSON holds both forms of an event to each other: a device that reads the
// one learns what a device learns that reads the other.
func FuzzJSON(f *testing.F) {
	f.Add(uint64(1), uint64(2), "order.push", "a\nb\"\\\t\x00\x1f\x7f\u2028<&>")
	f.Add(^uint64(0), ^uint64(0), "re\nsync\r\x00", "\r\n\r\r\n\n \xff\xe2\x80")
	f.Add(uint64(0), uint64(0), "x", "")
	f.Fuzz(func(t *testing.T, ms, seq uint64, typ, payload string) {
		if typ == "" {
			return // no event has none; a stream's reader would name it
		}
		id := event.ID{Ms: ms, Seq: seq}
		var got struct{ ID, Type, Data *string }
		text := AppendEventJSON([]byte{}, id, typ, payload)
		if err := json.Unmarshal(text, &got); err != nil || got.ID == nil || got.Type == nil || got.Data == nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := parseIn(t, AppendEvent(nil, id, typ, payload), 1<<20)[0]
		if diff := cmp.Diff(want, Event{ID: *got.ID, HasID: true, Type: *got.Type, Data: *got.Data}); diff != "" {
			t.Errorf("%q (-stream +JSON):\n%s", text, diff)
		}
	})
}

func TestAppendResyncJSON(t *testing.T) {
	got := string(AppendResyncJSON([]byte("x"), event.ID{Ms: 7, Seq: 1}, event.WindowExpired, 1200*time.Millisecond))
	if want := `x{"id":"7-1","type":"resync","data":"{\"reason\":\"window-expired\",\"after_ms\":1200}"}`; got != want {
		t.Errorf("got %s", got)
	}
}
