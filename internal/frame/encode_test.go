package frame

import (
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
)

var someID = event.ID{Ms: 1700000000000, Seq: 3}

func TestAppendEvent(t *testing.T) {
	const head = "id: 1700000000000-3\nevent: order.push\n"
	tests := []struct{ name, payload, want string }{
		{"JSON", `{"a":1}`, "data: {\"a\":1}\n\n"},
		{"empty", "", "data: \n\n"},
		{"LF", "a\nb", "data: a\ndata: b\n\n"},
		{"CRLF", "a\r\nb", "data: a\ndata: b\n\n"},
		{"CR", "a\rb", "data: a\ndata: b\n\n"},
		{"LF CR is two", "a\n\rb", "data: a\ndata: \ndata: b\n\n"},
		{"trailing LF", "a\n", "data: a\ndata: \n\n"},
		{"trailing CR", "a\r", "data: a\ndata: \n\n"},
		{"only LF", "\n", "data: \ndata: \n\n"},
		{"leading spaces", "  a", "data:   a\n\n"},
		{"other separators", "a\u2028b\u2029c\u0085d\ve\ff", "data: a\u2028b\u2029c\u0085d\ve\ff\n\n"},
		{"emoji", "🧾", "data: 🧾\n\n"},
		{"forged frame", "x\n\nid: 9-9\nevent: resync\ndata: y", "data: x\ndata: \ndata: id: 9-9\ndata: event: resync\ndata: data: y\n\n"},
		{"forged by CR", "x\r\rid: 9-9", "data: x\ndata: \ndata: id: 9-9\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendEvent([]byte("<"), someID, "order.push", tt.payload)); got != "<"+head+tt.want {
				t.Errorf("got  %q\nwant %q", got, "<"+head+tt.want)
			}
		})
	}
}

// TestAppendEventHostileType: Validate refuses these types, but a frame must
// not depend on that.
func TestAppendEventHostileType(t *testing.T) {
	for typ, want := range map[string]string{
		"a\nid: 9-9":  "a\uFFFDid: 9-9",
		"a\r\n\r\nb":  "a\uFFFD\uFFFD\uFFFD\uFFFDb",
		"re\nsync":    "re\uFFFDsync",
		"resync\n":    "resync\uFFFD",
		"a\x00b":      "a\uFFFDb",
		" resync":     " resync",
		"\uFEFF\x85x": "\uFEFF\x85x",
	} {
		got := string(AppendEvent(nil, someID, typ, "x"))
		if want := "id: 1700000000000-3\nevent: " + want + "\ndata: x\n\n"; got != want {
			t.Errorf("type %q:\ngot  %q\nwant %q", typ, got, want)
		}
	}
}

func TestAppendOthers(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"position", string(AppendPosition(nil, someID)), "id: 1700000000000-3\n\n"},
		{"lowest position", string(AppendPosition(nil, event.ID{})), "id: 0-0\n\n"},
		{"highest position", string(AppendPosition(nil, event.MaxID)), "id: 18446744073709551615-18446744073709551615\n\n"},
		{"retry", string(AppendRetry(nil, 3*time.Second)), "retry: 3000\n\n"},
		{"retry under 1 ms", string(AppendRetry(nil, time.Microsecond)), "retry: 0\n\n"},
		{"negative retry", string(AppendRetry(nil, -time.Second)), "retry: 0\n\n"},
		{"comment", string(AppendComment(nil, "draining")), ": draining\n\n"},
		{"hostile comment", string(AppendComment(nil, "a\r\n\ndata: x\x00")), ": a   data: x \n\n"},
		{"ping", Ping, string(AppendComment(nil, "ping"))},
		{
			"resync", string(AppendResync(nil, someID, event.WindowExpired, 1200*time.Millisecond)),
			"id: 1700000000000-3\nevent: resync\ndata: {\"reason\":\"window-expired\",\"after_ms\":1200}\n\n",
		},
		{
			"hostile reason", string(AppendResync(nil, someID, "x\",\n\ndata: \u00e9", -1)),
			"id: 1700000000000-3\nevent: resync\ndata: {\"reason\":\"xdata\",\"after_ms\":0}\n\n",
		},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s:\ngot  %q\nwant %q", tt.name, tt.got, tt.want)
		}
	}
}

// TestResyncRoundTrip also holds every reason of the contract to the alphabet
// that AppendResync keeps.
func TestResyncRoundTrip(t *testing.T) {
	for _, reason := range event.Reasons() {
		events := parseAll(t, AppendResync(nil, someID, reason, 1234*time.Millisecond))
		if len(events) != 1 || events[0].Type != event.ResyncType || events[0].ID != someID.String() {
			t.Fatalf("%s: got %+v", reason, events)
		}
		if got, want := ParseResync(events[0].Data), (Resync{reason, 1234 * time.Millisecond}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestParseResyncLenient(t *testing.T) {
	for data, want := range map[string]Resync{
		"":     {},
		"nope": {},
		"[]":   {},
		`{"reason":"new-one","after_ms":5,"more":{}}`:        {"new-one", 5 * time.Millisecond},
		`{"reason":7,"after_ms":"5"}`:                        {},
		`{"reason":"log-rewound","after_ms":-5}`:             {event.LogRewound, 0},
		`{"reason":"log-rewound","after_ms":1e300}`:          {event.LogRewound, 24 * time.Hour},
		`{"reason":"log-rewound","after_ms":1e999}`:          {event.LogRewound, 0},
		`{"reason":"log-rewound"}`:                           {event.LogRewound, 0},
		`{"after_ms":86400001,"reason":"log-rewound"} extra`: {},
	} {
		if got := ParseResync(data); got != want {
			t.Errorf("%q: got %+v, want %+v", data, got, want)
		}
	}
}

// TestEncodersDontAllocate: a frame is encoded for each event of the fleet.
func TestEncodersDontAllocate(t *testing.T) {
	dst := make([]byte, 0, 64<<10)
	payload := strings.Repeat(`{"key":"value"}`+"\r\n", 100)
	for name, encode := range map[string]func(){
		"event":    func() { AppendEvent(dst, someID, "order.push", payload) },
		"position": func() { AppendPosition(dst, someID) },
		"retry":    func() { AppendRetry(dst, time.Second) },
		"comment":  func() { AppendComment(dst, "a\nb") },
		"resync":   func() { AppendResync(dst, someID, event.LogUncertain, time.Second) },
	} {
		if n := testing.AllocsPerRun(100, encode); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
	// One; the race detector's build makes slices.Grow need two.
	if n := testing.AllocsPerRun(100, func() { AppendEvent(nil, someID, "order.push", payload) }); n > 2 {
		t.Errorf("event without room: %v allocations, want one", n)
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	for name, payload := range map[string]string{
		"1KiB":       strings.Repeat("x", 1<<10),
		"1KiB lines": strings.Repeat(strings.Repeat("x", 31)+"\n", 1<<5),
		"1MiB":       strings.Repeat("x", 1<<20),
	} {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, 2<<20)
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				AppendEvent(dst, someID, "order.push", payload)
			}
		})
	}
}
