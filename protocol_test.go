package downlink_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/frame"
)

const protocol = "docs/protocol.md"

// rowsUnder returns the cells of the first table after a line of docs/protocol.md.
func rowsUnder(t *testing.T, line string) [][]string {
	t.Helper()
	_, text, found := strings.Cut(read(t, protocol), line)
	if !found {
		t.Fatalf("%s has no line %q", protocol, line)
	}
	var rows [][]string
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(l), "|"), "|") {
			cells = append(cells, strings.Trim(strings.TrimSpace(cell), "`"))
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("%s has no table after %q", protocol, line)
	}
	return rows[2:]
}

// TestShardVectors: producers in other languages are built on these numbers.
func TestShardVectors(t *testing.T) {
	rows := rowsUnder(t, "<!-- Read by a test: keep the columns. -->")
	for _, row := range rows {
		device := row[0]
		if got := hex.EncodeToString([]byte(device)); got != row[1] {
			t.Errorf("%q is %s in hex, the page says %s", device, got, row[1])
		}
		if got := fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(device))); got != row[2] {
			t.Errorf("CRC-32 of %q is %s, the page says %s", device, got, row[2])
		}
		for i, shards := range []int{64, 100} {
			want, err := strconv.Atoi(row[3+i])
			if err != nil {
				t.Fatal(err)
			}
			if got := event.Shard(device, shards); got != want {
				t.Errorf("shard of %q among %d is %d, the page says %d", device, shards, got, want)
			}
		}
	}
	if len(rows) < 10 {
		t.Errorf("the page has %d vectors, too few", len(rows))
	}
}

// TestShardsAreEven: a fleet with numbered devices fills every shard alike.
func TestShardsAreEven(t *testing.T) {
	const devices, shards = 50_000, 64
	for _, pattern := range []string{"device-%d", "pos-%05d", "store-%04[2]d/pos-%[1]d", "%X"} {
		var count [shards]int
		for i := range devices {
			count[event.Shard(fmt.Sprintf(pattern+"%.0[2]s", i, strconv.Itoa(i/10)), shards)]++
		}
		for shard, n := range count {
			if n < devices/shards*8/10 || n > devices/shards*12/10 {
				t.Errorf("%s: shard %d has %d devices, the mean is %d", pattern, shard, n, devices/shards)
			}
		}
	}
}

// TestFrameExamples: each unit on the page is what the encoder writes.
func TestFrameExamples(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range rowsUnder(t, "The stream is a sequence of units") {
		kind, _, _ := strings.Cut(row[0], ",")
		seen[kind] = true
		want := strings.ReplaceAll(row[1], "⏎", "\n")
		if got := encodeLike(t, kind, want); got != want {
			t.Errorf("%s: the encoder writes %q, the page says %q", row[0], got, want)
		}
	}
	for _, kind := range []string{"reconnection time", "comment", "event", "position (id-only)", "keep-alive", "resync"} {
		if !seen[kind] {
			t.Errorf("the page has no example of: %s", kind)
		}
	}
}

// encodeLike encodes what the parser reads from an example.
func encodeLike(t *testing.T, kind, example string) string {
	t.Helper()
	var p frame.Parser
	var events []frame.Event
	if err := p.Feed([]byte(example), func(e frame.Event) error { events = append(events, e); return nil }); err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "comment":
		return string(frame.AppendComment(nil, "downlink"))
	case "keep-alive":
		return frame.Ping
	case "reconnection time":
		retry, _ := p.Retry()
		return string(frame.AppendRetry(nil, retry))
	}
	if len(events) != 1 {
		t.Fatalf("%q holds %d events", example, len(events))
	}
	id, err := event.ParseID(events[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "position (id-only)":
		return string(frame.AppendPosition(nil, id))
	case "resync":
		var data struct {
			Reason  event.Reason
			AfterMs int64 `json:"after_ms"`
		}
		if err := json.Unmarshal([]byte(events[0].Data), &data); err != nil {
			t.Fatal(err)
		}
		return string(frame.AppendResync(nil, id, data.Reason, time.Duration(data.AfterMs)*time.Millisecond))
	default:
		return string(frame.AppendEvent(nil, id, events[0].Type, events[0].Data))
	}
}

// TestReasonsAreDocumented: every reason has its row, and every row is a reason.
func TestReasonsAreDocumented(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range rowsUnder(t, "takes an error status as\nfinal.") {
		rows[row[0]] = true
	}
	for _, reason := range event.Reasons() {
		if !rows[string(reason)] {
			t.Errorf("%s doesn't explain the reason %q", protocol, reason)
		}
		delete(rows, string(reason))
	}
	for left := range rows {
		t.Errorf("%s explains %q, which is no reason", protocol, left)
	}
	text := read(t, protocol)
	for _, refusal := range door.Refusals() {
		if !strings.Contains(text, "`"+string(refusal)+"`") {
			t.Errorf("%s doesn't explain the refusal %q", protocol, refusal)
		}
	}
}

// TestLimitsAreDocumented compares the table of words with the code.
func TestLimitsAreDocumented(t *testing.T) {
	most := map[string]int{
		"device ID": event.MaxDeviceBytes,
		"target":    event.MaxDeviceBytes,
		"group":     event.MaxGroupBytes - len(event.GroupPrefix),
		"type":      event.MaxTypeBytes,
		"key":       event.MaxKeyBytes,
		"idem":      event.MaxIdemBytes,
		"trace":     event.MaxTraceBytes,
	}
	upper := regexp.MustCompile(`^[01]–(\d+)$`)
	for _, row := range rowsUnder(t, "An entry is kept for a **window**") {
		want, limited := most[row[0]]
		if !limited {
			continue // the payload's limit is a setting
		}
		if m := upper.FindStringSubmatch(row[2]); m == nil || m[1] != strconv.Itoa(want) {
			t.Errorf("%s: the code allows %d bytes, the page says %s", row[0], want, row[2])
		}
		delete(most, row[0])
	}
	if len(most) > 0 {
		t.Errorf("the page has no rows for %v", most)
	}
}
