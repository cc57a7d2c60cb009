package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// heard is what a Sink was told, as text.
type heard struct {
	lines  []string
	stream *Stream
}

func (h *heard) Head(status int) { h.lines = append(h.lines, fmt.Sprint("head ", status)) }

func (h *heard) Event(e *Event) {
	line := fmt.Sprintf("event after id %q", h.stream.LastID())
	if e.Kind == Resync {
		line += " resync"
	}
	if e.Mark.Marked {
		line += fmt.Sprintf(" %d:%d:%d:%d", e.Mark.Lane, e.Mark.Seq, e.Mark.Sent, e.Mark.Late)
	}
	h.lines = append(h.lines, line)
}

// listen feeds the pieces and returns what was told.
func listen(pieces ...string) []string {
	s := &Stream{KeepID: true}
	h := &heard{stream: s}
	var scratch Scratch
	for _, piece := range pieces {
		// Only an array of the piece's own shows a slice that was kept.
		b := []byte(piece)
		err := s.Feed(b, &scratch, h)
		clear(b)
		switch {
		case errors.Is(err, io.EOF):
			h.lines = append(h.lines, "end")
			return append(h.lines, fmt.Sprintf("last %q", s.LastID()))
		case errors.Is(err, ErrMalformed):
			return append(h.lines, "malformed")
		case errors.Is(err, ErrContentType):
			return append(h.lines, "other type")
		case err != nil:
			return append(h.lines, "another error: "+err.Error())
		}
	}
	return append(h.lines, fmt.Sprintf("last %q", s.LastID()))
}

// chunks encodes a body with chunks of n bytes.
func chunks(body string, n int) string {
	var b strings.Builder
	for len(body) > 0 {
		part := body[:min(n, len(body))]
		body = body[len(part):]
		fmt.Fprintf(&b, "%X;a=b\r\n%s\r\n", len(part), part)
	}
	return b.String() + "0\r\nTrailer: x\r\n\r\n"
}

const body = "\xEF\xBB\xBFretry: 3000\n\n: hello\n\n" +
	"id: 1-0\r\nevent: resync\r\ndata: {\"reason\":\"no-cursor\"}\n\n" +
	"event: load\r\nid: 2-0\r\ndata: {\"m\":\"dl1:7:0:123:5;xxxx\"}\r\n\r\n" +
	"id: 3-0\n\n" + // a keep-alive that moves the position
	"id:4-0\ndata:one\ndata: dl1:b2:9:124:0;\n\n" +
	"id: 5-\x000\ndata\ndatum: dl1:1:1:1:1;\n\n" + // no ID, and not the field data
	"data: [dl1:1:1:1:0; dl1:1:2:1:0;]\r\r" +
	"id: 6-0\ndata: dl1:7:1:125:0;" // never ended, so never dispatched

var bodyHeard = []string{
	`event after id "1-0" resync`,
	`event after id "2-0" 7:0:123:5`,
	`event after id "4-0" -3:9:124:0`,
	`event after id "4-0"`,
	`event after id "4-0" 1:1:1:0`,
	`event after id "4-0" 1:2:1:0`,
}

// TestEveryCut: how a response is cut changes nothing.
func TestEveryCut(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for name, c := range map[string]struct {
		response string
		end      []string
	}{
		"until the end":  {"HTTP/1.1 200 OK\r\n\r\n" + body, []string{`last "4-0"`}},
		"bare line ends": {"HTTP/1.1 200 OK\nX: y\n\n" + body, []string{`last "4-0"`}},
		"length":         {head + fmt.Sprintf("content-length:%d\r\n\r\n", len(body)) + body, []string{"end", `last "4-0"`}},
		"chunks of 1":    {head + "Transfer-Encoding: chunked\r\n\r\n" + chunks(body, 1), []string{"end", `last "4-0"`}},
		"chunks of 7":    {head + "Transfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n" + chunks(body, 7), []string{"end", `last "4-0"`}},
		"one chunk":      {"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n" + chunks(body, 1000), []string{"end", `last "4-0"`}},
	} {
		t.Run(name, func(t *testing.T) {
			want := append(append([]string{"head 200"}, bodyHeard...), c.end...)
			if diff := cmp.Diff(want, listen(c.response)); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(want, listen(strings.Split(c.response, "")...)); diff != "" {
				t.Error("byte by byte:", diff)
			}
			for i := 1; i < len(c.response); i++ {
				if diff := cmp.Diff(want, listen(c.response[:i], c.response[i:])); diff != "" {
					t.Fatalf("cut at %d: %s", i, diff)
				}
			}
		})
	}
}

func TestAnswersWithoutAStream(t *testing.T) {
	for response, want := range map[string]string{
		"HTTP/1.1 204 No Content\r\n\r\n":                                                                "head 204 end",
		"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno":                                                 "head 503 end",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                                                   "head 200 end",
		"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n":                                             "other type",
		"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nContent-Length: 0\r\n\r\n": "head 200 end",
		"HTTP/1.1 401 No\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n":                       "head 401 end",
		"SSH-2.0-OpenSSH\r\n":                                                        "malformed",
		"HTTP/1.1 abc\r\n":                                                           "malformed",
		"HTTP/1.1 200 OK\r\nnonsense\r\n":                                            "malformed",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n":                                  "malformed",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n":                             "malformed",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz":                    "head 200 malformed",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n":                  "head 200 malformed",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc":              "head 200 malformed",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n": "head 200 malformed",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", maxHead):                      "malformed",
	} {
		for _, pieces := range [][]string{{response}, strings.Split(response, "")} {
			got := strings.Join(listen(pieces...), " ")
			if got = strings.TrimSuffix(got, ` last ""`); got != want {
				t.Errorf("%.60q in %d pieces: %q, want %q", response, len(pieces), got, want)
			}
		}
	}
}

// TestLongLines: a line longer than what is kept loses no marker, and costs no
// more memory than that.
func TestLongLines(t *testing.T) {
	marker := string(Mark{Lane: 3, Seq: 4, Sent: 5}.Append(nil))
	long := strings.Repeat("y", maxLine)
	response := "HTTP/1.1 200 OK\r\n\r\n" +
		"data: " + marker + long + marker[:7]
	got := listen(response, marker[7:]+long+long, long+"\n\n: "+long, long+"\nid: "+long, long+"\n\ndata: x\n\n")
	want := []string{"head 200", `event after id "" 3:4:5:0`, `event after id "" 3:4:5:0`, `event after id ""`, `last ""`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// TestReset: a device that reconnects keeps its position, and nothing else.
func TestReset(t *testing.T) {
	s := &Stream{KeepID: true}
	h := &heard{stream: s}
	var scratch Scratch
	feed := func(text string) {
		t.Helper()
		if err := s.Feed([]byte(text), &scratch, h); err != nil {
			t.Fatal(err)
		}
	}
	feed("HTTP/1.1 200 OK\r\n\r\nid: 7-1\ndata: x\n\nid: 8-0\ndata: dl1:1:1:1:1;\n")
	s.Reset(&scratch)
	if string(s.LastID()) != "7-1" || s.Status() != 0 {
		t.Errorf("after a reset: ID %q, status %d", s.LastID(), s.Status())
	}
	feed("HTTP/1.1 200 OK\r\n\r\ndata: y\n\n")
	want := []string{"head 200", `event after id "7-1"`, "head 200", `event after id "7-1"`}
	if diff := cmp.Diff(want, h.lines); diff != "" {
		t.Error(diff)
	}
}

type deaf struct{ events int }

func (*deaf) Head(int)       {}
func (d *deaf) Event(*Event) { d.events++ }

// TestNoAllocation: receiving costs no memory, also when events are cut.
func TestNoAllocation(t *testing.T) {
	s, d := &Stream{KeepID: true}, &deaf{}
	var scratch Scratch
	feed := func(b []byte) {
		if err := s.Feed(b, &scratch, d); err != nil {
			t.Fatal(err)
		}
	}
	feed([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
	event := "id: 1764482123456-12\nevent: load\ndata: {\"m\":\"dl1:7:0:1764482123456000000:5;" + strings.Repeat("x", 250) + "\"}\n\n"
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event)
	feed(chunk)
	feed(chunk)
	allocs := testing.AllocsPerRun(1000, func() {
		feed(chunk)
		feed(chunk[:100])
		feed(chunk[100:])
	})
	if allocs > 0 {
		t.Errorf("%.2f allocations for two events", allocs)
	}
	if d.events == 0 {
		t.Error("no event was heard")
	}
}

func TestMarks(t *testing.T) {
	for _, m := range []Mark{
		{Lane: 0, Seq: 0, Sent: 0, Late: 0},
		{Lane: 17999, Seq: 1, Sent: 1764482123456000000, Late: 17},
		{Lane: Broadcast(0), Seq: 5},
		{Lane: Broadcast(999), Seq: 1<<32 - 1, Sent: 1<<63 - 1, Late: 1<<31 - 1},
	} {
		text := m.Append([]byte("dl1:dl1:1:2;dl1:x"))
		m.Marked = true
		got, rest, ok := FindMark(append(text, "rest"...))
		if !ok || got != m || string(rest) != "rest" {
			t.Errorf("%s: %+v %q %t", text, got, rest, ok)
		}
		if len(text)-17 > maxMark {
			t.Errorf("%s is longer than maxMark", text)
		}
	}
	for _, text := range []string{"", "dl1", "dl1:", "dl1:1:2:3", "dl1:1:2:3:4", "dl1:-1:2:3:4;", "dl1:b:1:1:1;", "dl1:2147483648:1:1:1;", "dl1:1:4294967296:1:1;", "dl1:1:1:9223372036854775808:1;", "dl1::::;"} {
		if m, _, ok := FindMark([]byte(text)); ok {
			t.Errorf("%q was taken for %+v", text, m)
		}
	}
}

// FuzzStream: any bytes, cut anywhere, tell the same; none panics.
func FuzzStream(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\n\r\n"+body, 30, 90)
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks(body, 9), 60, 77)
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata: x\n\n", 3, 4)
	f.Fuzz(func(t *testing.T, response string, a, b int) {
		if len(response) == 0 || len(response) > maxLine/2 { // a longer line is cut differently
			return
		}
		a, b = abs(a)%len(response), abs(b)%len(response)
		a, b = min(a, b), max(a, b)
		whole := listen(response)
		if diff := cmp.Diff(whole, listen(response[:a], response[a:b], response[b:])); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(whole, listen(strings.Split(response, "")...)); diff != "" && len(response) < 1000 {
			// strings.Split cuts characters, which is as good as bytes.
			t.Fatal(diff)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
