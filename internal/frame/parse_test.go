package frame

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// parseAll reads one stream in one chunk.
func parseAll(t *testing.T, stream []byte) []Event {
	t.Helper()
	var p Parser
	var events []Event
	if err := p.Feed(stream, func(e Event) error { events = append(events, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return events
}

func TestParserLimit(t *testing.T) {
	const limit = 100
	fits := strings.Repeat("x", limit-len("data:"))
	tests := []struct {
		name, stream string
		ok           bool
	}{
		{"one line at the limit", "data:" + fits + "\n\n", true},
		{"one line over it", "data:" + fits + "x\n\n", false},
		{"a line that never ends", "data:" + fits + "x", false},
		{"many lines", strings.Repeat("data:xxxxxxxxx\n", 11) + "\n", false},
		{"many empty lines", strings.Repeat("data\n", 101) + "\n", false},
		{"an endless id", "id:" + strings.Repeat("x", limit) + "\n\n", false},
		{"an endless type", "event:" + strings.Repeat("x", limit) + "\n\n", false},
		{"an endless retry", "retry:" + strings.Repeat("1", limit) + "\n\n", false},
		{"all together", "id:" + fits[:40] + "\nevent:" + fits[:40] + "\ndata:" + fits[:20] + "\n\n", false},
		{"many events", strings.Repeat("id:1\nevent:x\ndata:"+fits[:50]+"\n\n", 10), true},
		{"an endless comment", ":" + strings.Repeat("x", 10*limit) + "\n\n", true},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 7, len(tt.stream)} {
			p := Parser{MaxBlock: limit}
			err := feedIn(&p, tt.stream, size)
			if tt.ok != (err == nil) || (err != nil && !errors.Is(err, ErrBlockTooLarge)) {
				t.Errorf("%s, chunks of %d: error %v, want ok %v", tt.name, size, err, tt.ok)
			}
			if err != nil && p.Feed([]byte("\n\ndata:k\n\n"), nil) == nil {
				t.Errorf("%s: the parser went on after its error", tt.name)
			}
		}
	}
}

func feedIn(p *Parser, stream string, size int) error {
	for len(stream) > 0 {
		n := min(size, len(stream))
		if err := p.Feed([]byte(stream[:n]), func(Event) error { return nil }); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return nil
}

// TestParserStopsAtYield: an event after the one that failed must not be seen,
// or its ID would be committed past the failed one's.
func TestParserStopsAtYield(t *testing.T) {
	var p Parser
	boom := errors.New("boom")
	var seen []string
	yield := func(e Event) error {
		seen = append(seen, e.Data)
		if e.Data == "b" {
			return boom
		}
		return nil
	}
	if err := p.Feed([]byte("data:a\n\nid:2\ndata:b\n\nid:3\ndata:c\n\n"), yield); !errors.Is(err, boom) {
		t.Fatalf("error %v, want %v", err, boom)
	}
	if err := p.Feed([]byte("data:d\n\n"), yield); !errors.Is(err, boom) {
		t.Fatalf("later error %v, want %v", err, boom)
	}
	if got := strings.Join(seen, ""); got != "ab" {
		t.Fatalf("saw %q, want \"ab\"", got)
	}
	p.Reset("1")
	if err := p.Feed([]byte("data:e\n\n"), yield); err != nil || p.LastID() != "1" {
		t.Fatalf("after Reset: error %v, last id %q", err, p.LastID())
	}
}

func TestParserRetryOverflow(t *testing.T) {
	var p Parser
	if err := feedIn(&p, "retry: 99999999999999999999999999\n", 5); err != nil {
		t.Fatal(err)
	}
	got, ok := p.Retry()
	if want := math.MaxInt64 / int64(time.Millisecond) * int64(time.Millisecond); !ok || int64(got) != want {
		t.Fatalf("retry %d %v, want %d", got, ok, want)
	}
}

// TestParserGivesMemoryBack: one large event must not cost its size for ever.
func TestParserGivesMemoryBack(t *testing.T) {
	var p Parser
	if err := feedIn(&p, "data:"+strings.Repeat("x", 4<<20)+"\n\ndata:k\n\n", 4<<10); err != nil {
		t.Fatal(err)
	}
	if held := cap(p.data) + cap(p.line); held > 2*keepBuffer {
		t.Fatalf("holds %d bytes after the event", held)
	}
}

func BenchmarkParser(b *testing.B) {
	stream := []byte(strings.Repeat(string(AppendEvent(nil, someID, "order.push", strings.Repeat("x", 1<<10))), 64))
	for name, size := range map[string]int{"64KiB": len(stream), "1400B": 1400} {
		b.Run(name, func(b *testing.B) {
			var p Parser
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				for at := 0; at < len(stream); at += size {
					if err := p.Feed(stream[at:min(at+size, len(stream))], func(Event) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
