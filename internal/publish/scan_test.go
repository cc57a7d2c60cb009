package publish

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/problem"
)

// FuzzParse holds the reader of messages against the standard library's: what
// is accepted is JSON with the same content, and can be stored.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"device":"d","type":"t","payload":{"a":[1,2,{"b":"\"}]"}]}}`, `{"devices":["a","b\u00e9"],"type":"t","text":"\ud83d\ude00"}`,
		`{"device":"*","type":"t","text":"","key":"k","idem":"i","trace":"00-x"}`, `{"device":"d","type":"t","payload":-1.5e+7 }`, "\n{ }\t",
		`{"device":"d","type":"t","text":"\ud800"}`, `{"device":"d","device":"e"}`, `[1]`, `{"a":{"b":{}},"c":[[],[]]}`, `{"devices":[1,null,"x" , {}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parse(body, 1000)
		if err != nil {
			var d *problem.Document
			if !errors.As(err, &d) || d.Status < 400 || d.Status > 413 || !utf8.ValidString(d.Detail) || !utf8.ValidString(d.Field) {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		var std struct {
			Device  *string
			Devices []string
			Type    string
			Payload json.RawMessage
			Text    *string
			Key     string
			Idem    string
			Trace   string
		}
		if err := json.Unmarshal(body, &std); err != nil {
			t.Fatalf("accepted what isn't JSON: %v", err)
		}
		if std.Device != nil {
			std.Devices = []string{*std.Device}
		}
		payload := string(std.Payload)
		if std.Text != nil {
			payload = *std.Text
		}
		if strings.Join(m.targets, "\n") != strings.Join(std.Devices, "\n") || m.typ != std.Type || m.payload != payload || m.key != std.Key || m.idem != std.Idem || m.trace != std.Trace {
			t.Fatalf("%+v, want %+v", m, std)
		}
		for _, target := range m.targets {
			e := m.event(target)
			if err := e.Validate(1000); err != nil {
				t.Fatalf("accepted what can't be stored: %v", err)
			}
		}
	})
}

// A plan keeps the order of a shard's events, whatever shares an append with
// what, and each slot finds its own event.
func TestPlanKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 5).Draw(t, "shards")
		p := newPlan(shards, 1)
		want := map[int][]string{} // shard -> payloads
		type check struct {
			s    slot
			text string
		}
		var checks []check
		for i := range rapid.IntRange(1, 30).Draw(t, "messages") {
			m := &message{typ: "t", payload: string(rune('a' + i))}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				m.targets = []string{rapid.StringMatching("[a-d]").Draw(t, "device")}
			case 1:
				m.targets, m.list = []string{"a", "b", "c", "d"}, true
			case 2:
				m.targets = []string{event.Broadcast}
			}
			if rapid.Bool().Draw(t, "keyed") {
				m.idem = m.payload
			}
			for _, s := range p.add(m, m.once("")) {
				want[s.shard] = append(want[s.shard], m.payload)
				checks = append(checks, check{s, m.payload})
			}
		}
		got := map[int][]string{}
		for _, a := range p.appends {
			keys := map[string]bool{}
			for _, e := range a.Events {
				got[a.Shard] = append(got[a.Shard], e.Payload)
				keys[e.Idem] = true
			}
			if len(keys) != 1 || (a.Once == nil) != keys[""] {
				t.Fatalf("an append mixes keys: %v", keys)
			}
		}
		for shard, texts := range want {
			if strings.Join(got[shard], "") != strings.Join(texts, "") {
				t.Fatalf("shard %d: %v, want %v", shard, got[shard], texts)
			}
		}
		for _, c := range checks {
			a := p.appends[c.s.append]
			if e := a.Events[c.s.event]; e.Payload != c.text || e.Target != c.s.target || a.Shard != c.s.shard {
				t.Fatalf("the slot %+v holds %+v", c.s, e)
			}
		}
	})
}

func TestFingerprintTellsMessagesApart(t *testing.T) {
	seen := map[string]int{}
	zeros := strings.Repeat("\x00", 8)
	for i, m := range []message{
		{typ: "c" + zeros + "d"}, {typ: "c", payload: "d" + zeros},
		{targets: []string{"ab"}, typ: "c"}, {targets: []string{"a"}, typ: "bc"}, {targets: []string{"a", "b"}, typ: "c"}, {targets: []string{"b", "a"}, typ: "c"},
		{targets: []string{"ab"}, typ: "c", payload: "d"}, {targets: []string{"ab"}, typ: "c", key: "d"}, {targets: []string{"ab"}, typ: "cd"},
	} {
		if j, twice := seen[m.fingerprint()]; twice {
			t.Errorf("messages %d and %d have one fingerprint", i, j)
		}
		seen[m.fingerprint()] = i
	}
}

func BenchmarkParse(b *testing.B) {
	body := []byte(`{"device":"A83F21","type":"order.push","payload":{"order":12345,"lines":[{"sku":"4006381333931","n":2},{"sku":"4006381333948","n":1}],"note":"no onions"}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parse(body, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
