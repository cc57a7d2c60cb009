package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// row is a row of conformance/sse-parser.json; conformance/README.md says what
// its members mean.
type row struct {
	ID           string
	Case         string
	Title        string
	LineEnds     bool `json:"line_ends"`
	Streams      [][]part
	Items        []item
	LastID       string `json:"last_id"`
	RetryMS      *int64 `json:"retry_ms"`
	MaxHeldBytes int    `json:"max_held_bytes"`
}

type part []byte

func (p *part) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		var s string
		err := json.Unmarshal(text, &s)
		*p = part(s)
		return err
	}
	var long struct {
		Text   string
		Times  int
		Base64 []byte
	}
	err := json.Unmarshal(text, &long)
	*p = append(bytes.Repeat([]byte(long.Text), long.Times), long.Base64...)
	return err
}

// item is an event, or a position if that isn't nil.
type item struct {
	Type, Data, ID string
	Position       *string
}

func (i *item) UnmarshalJSON(text []byte) error {
	var raw struct {
		Type, ID string
		Position *string
		Data     json.RawMessage
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*i = item{Type: raw.Type, ID: raw.ID, Position: raw.Position}
	if len(raw.Data) == 0 {
		return nil
	}
	if raw.Data[0] != '[' {
		return json.Unmarshal(raw.Data, &i.Data)
	}
	var parts []part
	err := json.Unmarshal(raw.Data, &parts)
	i.Data = string(join(parts))
	return err
}

func join(parts []part) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func rows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("../../conformance/sse-parser.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []row }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Rows) < 70 {
		t.Fatalf("only %d rows, want all of them", len(file.Rows))
	}
	return file.Rows
}

// chunkings are the ways to cut a stream.
var chunkings = []struct {
	name string
	next func(rest int) int // length of the next chunk
}{
	{"whole", func(rest int) int { return rest }},
	{"1 byte", func(int) int { return 1 }},
	{"2 bytes", func(rest int) int { return min(2, rest) }},
	{"random", func(rest int) int { return 1 + rand.IntN(min(rest, 1<<rand.IntN(16))) }},
}

func TestConformance(t *testing.T) {
	for _, r := range rows(t) {
		t.Run(r.ID+r.Case, func(t *testing.T) {
			t.Parallel()
			t.Log(r.Title)
			checkRow(t, "as given", r, func(feed func([]byte), stream []part) {
				for _, p := range stream {
					feed(p)
				}
			})
			checkChunkings(t, "", r)
			if !r.LineEnds {
				return
			}
			for name, end := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r"} {
				checkChunkings(t, "X03 all "+name+", ", withLineEnds(r, end))
			}
		})
	}
}

// fine is how far from both ends a long stream is cut finely; millions of
// single bytes in the middle of a line would only cost time.
const fine = 256 << 10

func checkChunkings(t *testing.T, variant string, r row) {
	t.Helper()
	for _, c := range chunkings {
		checkRow(t, variant+c.name, r, func(feed func([]byte), stream []part) {
			all := join(stream)
			for at := 0; at < len(all); {
				n := c.next(len(all) - at)
				if at > fine && len(all)-at > fine {
					n = min(max(n, 4093), len(all)-at-fine)
				}
				feed(all[at : at+n : at+n])
				at += n
			}
		})
	}
}

// withLineEnds is row X03: the same row with other line ends.
func withLineEnds(r row, end string) row {
	var streams [][]part
	for _, s := range r.Streams {
		all := bytes.ReplaceAll(join(s), []byte("\r\n"), []byte("\n"))
		all = bytes.ReplaceAll(all, []byte("\r"), []byte("\n"))
		streams = append(streams, []part{bytes.ReplaceAll(all, []byte("\n"), []byte(end))})
	}
	r.Streams = streams
	return r
}

func checkRow(t *testing.T, variant string, r row, cut func(feed func([]byte), stream []part)) {
	t.Helper()
	var p Parser
	var got []item
	held := 0
	keep := func(e Event) error {
		got = append(got, itemOf(e))
		return nil
	}
	var scratch []byte // used again for each chunk: the parser may not keep one
	for i, stream := range r.Streams {
		if i > 0 {
			p.Reset(p.LastID())
		}
		cut(func(chunk []byte) {
			scratch = append(scratch[:0], chunk...)
			if err := p.Feed(scratch, keep); err != nil {
				t.Fatalf("%s: %v", variant, err)
			}
			held = max(held, cap(p.line)+cap(p.data)+cap(p.typ)+cap(p.id))
		}, stream)
	}
	if diff := cmp.Diff(r.Items, got); diff != "" {
		t.Errorf("%s: items (-want +got):\n%.2000s", variant, diff)
	}
	if p.LastID() != r.LastID {
		t.Errorf("%s: last id %q, want %q", variant, p.LastID(), r.LastID)
	}
	retry, ok := p.Retry()
	if want := retryOf(r); ok != (r.RetryMS != nil) || retry != want {
		t.Errorf("%s: retry %v %v, want %v", variant, retry, ok, want)
	}
	if r.MaxHeldBytes > 0 && held > r.MaxHeldBytes {
		t.Errorf("%s: the parser held %d bytes, allowed are %d", variant, held, r.MaxHeldBytes)
	}
}

func itemOf(e Event) item {
	if e.Position {
		return item{Position: &e.ID}
	}
	return item{Type: e.Type, Data: e.Data, ID: e.ID}
}

func retryOf(r row) time.Duration {
	if r.RetryMS == nil {
		return 0
	}
	return time.Duration(*r.RetryMS) * time.Millisecond
}

// TestConformanceRows holds the file to the list of rows: none may get lost.
func TestConformanceRows(t *testing.T) {
	have := map[string]bool{"X03": true} // member line_ends
	for _, name := range []string{"parser", "client"} {
		text, err := os.ReadFile("../../conformance/sse-" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Rows []struct{ ID string } }
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for _, r := range file.Rows {
			have[r.ID] = true
		}
	}
	for n := 1; n <= 34; n++ {
		if id := fmt.Sprintf("W%02d", n); !have[id] {
			t.Errorf("no row %s", id)
		}
		if id := fmt.Sprintf("X%02d", n); n <= 25 && !have[id] {
			t.Errorf("no row %s", id)
		}
	}
	if len(have) != 34+25 {
		t.Errorf("%d rows, want %d", len(have), 34+25)
	}
}
