package frame

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/event"
)

// FuzzRoundTrip holds the encoder and the parser to each other: what is written
// is one event, itself, whatever stands in it and around it.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint64(2), "order.push", "a\nb", uint8(3))
	f.Add(uint64(0), uint64(0), "", "", uint8(1))
	f.Add(^uint64(0), ^uint64(0), "re\nsync\r\x00", "\r\n\r\r\n\n  \x00\uFEFF", uint8(2))
	f.Add(uint64(1), uint64(1), "x", "\xff\xe2\x80\r\xf0\x9f", uint8(1))
	f.Fuzz(func(t *testing.T, ms, seq uint64, typ, payload string, size uint8) {
		id := event.ID{Ms: ms, Seq: seq}
		stream := AppendComment(nil, payload)
		stream = AppendEvent(stream, id, typ, payload)
		stream = append(AppendRetry(stream, 7), Ping...)
		stream = AppendPosition(stream, id.Next())

		got := parseIn(t, stream, int(size))
		want := []Event{
			{ID: id.String(), HasID: true, Type: wantType(typ), Data: wantData(payload)},
			{ID: id.Next().String(), HasID: true, Position: true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("stream %q (-want +got):\n%s", stream, diff)
		}
	})
}

// wantData is the payload as docs/protocol.md says that it arrives.
func wantData(payload string) string {
	payload = strings.ReplaceAll(payload, "\r\n", "\n")
	return decoded(strings.ReplaceAll(payload, "\r", "\n"))
}

func wantType(typ string) string {
	if typ == "" {
		return "message"
	}
	return decoded(strings.NewReplacer("\r", "\uFFFD", "\n", "\uFFFD", "\x00", "\uFFFD").Replace(typ))
}

// decoded leaves what is valid as it is; the count of U+FFFD is row X24's.
func decoded(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string(appendUTF8(nil, []byte(s)))
}

// FuzzChunking: the events don't depend on how the stream is cut up, nothing
// panics, and what comes out is valid.
func FuzzChunking(f *testing.F) {
	for _, s := range []string{
		"\xef\xbb\xbfdata:a\r\rid:1\r\ndata\n\n", "\xef\xbbdata:\n\n", ":\x00\n\rretry:12\nevent: x\ndata:\xe2\x80\r\n\r\n",
		"id:a\x00\nid\n\ndatax:1\ndat\n\nretry:99999999999999999999\n\n", "data: k\rdata: m\r\r",
	} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(2))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole, cut := Parser{MaxBlock: 64}, Parser{MaxBlock: 64}
		want, wantErr := collect(&whole, stream, len(stream))
		got, gotErr := collect(&cut, stream, int(size))
		if wantErr == nil && gotErr != nil && unfinished(stream) {
			return // an endless line is noticed earlier or later
		}
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("%q: error %v whole, %v in chunks of %d", stream, wantErr, gotErr, size)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q in chunks of %d (-whole +cut):\n%s", stream, size, diff)
		}
		if whole.LastID() != cut.LastID() || whole.retry != cut.retry || whole.hasRetry != cut.hasRetry {
			t.Fatalf("%q: last id %q or %q, retry %v or %v", stream, whole.LastID(), cut.LastID(), whole.retry, cut.retry)
		}
		for _, e := range got {
			if !utf8.ValidString(e.Data+e.Type+e.ID) || strings.ContainsAny(e.ID, "\r\n\x00") || strings.Contains(e.Data, "\r") {
				t.Fatalf("%q: event %+v", stream, e)
			}
		}
	})
}

func unfinished(stream []byte) bool {
	return len(stream) > 0 && stream[len(stream)-1] != '\n' && stream[len(stream)-1] != '\r'
}

func collect(p *Parser, stream []byte, size int) (events []Event, err error) {
	size = max(size, 1)
	for at := 0; at < len(stream) && err == nil; at += size {
		err = p.Feed(stream[at:min(at+size, len(stream))], func(e Event) error {
			events = append(events, e)
			return nil
		})
	}
	return events, err
}

func parseIn(t *testing.T, stream []byte, size int) []Event {
	t.Helper()
	var p Parser
	events, err := collect(&p, stream, size)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// FuzzResync: no data of a resync frame can stop a device or put it to sleep.
func FuzzResync(f *testing.F) {
	f.Add(`{"reason":"window-expired","after_ms":1200}`)
	f.Add(`{"reason":["x"],"after_ms":1e400}`)
	f.Fuzz(func(t *testing.T, data string) {
		if r := ParseResync(data); r.After < 0 || r.After > maxAfter {
			t.Fatalf("%q: wait %v", data, r.After)
		}
	})
}
