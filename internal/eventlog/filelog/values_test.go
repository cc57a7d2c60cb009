package filelog

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func anyID(t *rapid.T, label string) event.ID {
	return event.ID{Ms: rapid.Uint64().Draw(t, label+" ms"), Seq: rapid.Uint64().Draw(t, label+" seq")}
}

// TestKeysSort: bytes sort as (shard, ID) does, and each key lies in the bounds
// of its shard alone.
func TestKeysSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s1, s2 := rapid.IntRange(0, MaxShards-1).Draw(t, "s1"), rapid.IntRange(0, MaxShards-1).Draw(t, "s2")
		a, b := anyID(t, "a"), anyID(t, "b")
		want := a.Compare(b)
		if s1 != s2 {
			want = map[bool]int{true: -1, false: 1}[s1 < s2]
		}
		ka, kb := entryKey(s1, a), entryKey(s2, b)
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("keys compare %d, want %d", got, want)
		}
		inside := bytes.Compare(key(entryPrefix, s1), kb) <= 0 && bytes.Compare(kb, endOf(entryPrefix, s1)) < 0
		if inside != (s1 == s2) || keyID(ka) != a || !isEntryOf(ka, s1) || isEntryOf(ka, s2) != (s1 == s2) {
			t.Fatalf("key %x of shard %d against shard %d", kb, s2, s1)
		}
	})
}

func TestLastShard(t *testing.T) {
	const last = MaxShards - 1
	end := endOf(entryPrefix, last)
	if bytes.Compare(entryKey(last, event.MaxID), end) >= 0 || bytes.Compare(end, key(entryPrefix+1, 0)) > 0 {
		t.Errorf("the last shard ends at %x", end)
	}
}

func TestEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string) string { return rapid.StringN(0, 40, 300).Draw(t, label) }
		e := event.Event{Target: text("target"), Type: text("type"), Payload: text("payload"),
			Key: text("key"), Idem: text("idem"), Trace: text("trace")}
		b := appendEvent(nil, &e)
		if len(b) != eventSize(&e) {
			t.Fatalf("size %d, said %d", len(b), eventSize(&e))
		}
		got, err := decodeEntry(event.ID{Ms: 1}, b, math.MaxInt)
		if err != nil || got.Event != e {
			t.Fatalf("decoded %+v, %v; want %+v", got, err, e)
		}
		if target, err := targetOf(b); err != nil || target != e.Target {
			t.Fatalf("target %q, %v", target, err)
		}
		if _, err := decodeEntry(event.ID{}, b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")], math.MaxInt); err == nil {
			t.Fatal("a cut value is decoded")
		}
	})
}

func TestStoredRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := stored{at: rapid.Uint64().Draw(t, "at"), fingerprint: rapid.String().Draw(t, "fingerprint")}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			want.ids = append(want.ids, anyID(t, "id"))
		}
		got, err := decodeStored(want.encode())
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(stored{})); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	e := event.Event{Target: "pos-1", Type: "t", Payload: "{}", Trace: "x"}
	f.Add(appendEvent(nil, &e))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeEntry(event.ID{}, b, math.MaxInt)
		if err != nil {
			return
		}
		again := appendEvent(nil, &got.Event)
		if len(again) > len(b) {
			t.Errorf("%x was decoded as %+v", b, got)
		}
		if target, err := targetOf(b); err != nil || target != got.Event.Target {
			t.Errorf("target %q, %v; want %q", target, err, got.Event.Target)
		}
	})
}

func FuzzDecodeStored(f *testing.F) {
	f.Add(stored{at: 1, fingerprint: "f", ids: []event.ID{{Ms: 1}}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeStored(b); err == nil && len(s.ids)*idBytes > len(b) {
			t.Errorf("%x was decoded as %+v", b, s)
		}
	})
}

// TestRecordFormat: the stored form is a promise to directories that exist.
func TestRecordFormat(t *testing.T) {
	r := record{
		Founded: event.ID{Ms: 1}, Since: event.ID{Ms: 2}, Swept: event.ID{Ms: 3, Seq: 4},
		Breaks: []eventlog.Break{{Boundary: event.ID{Ms: 5}, Reach: event.ID{Ms: 6}, Reason: event.LogRewound, Gap: true}},
		Marks:  []mark{{At: 7, ID: event.ID{Ms: 8}}},
		Days:   []mark{{At: 9, ID: event.ID{Ms: 10}}},
	}
	const want = `{"Founded":"1-0","Since":"2-0","Swept":"3-4",` +
		`"Breaks":[{"Boundary":"5-0","Reach":"6-0","Reason":"log-rewound","Gap":true}],` +
		`"Marks":[{"At":7,"ID":"8-0"}],"Days":[{"At":9,"ID":"10-0"}]}`
	if got := string(r.encode()); got != want {
		t.Errorf("a record is stored as\n%s, want\n%s", got, want)
	}
	back, err := decodeRecord([]byte(want))
	if diff := cmp.Diff(r, back); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := decodeRecord([]byte("{")); err == nil {
		t.Error("half a record is decoded")
	}
	if m, err := json.Marshal(meta{Version: 1, Shards: 64}); err != nil || string(m) != `{"version":1,"shards":64}` {
		t.Errorf("meta is stored as %s, %v", m, err)
	}
}
