package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"downlink/internal/explain"
	"downlink/internal/testkit"
)

const (
	updates      = 10_000
	boards       = 10 // keys
	conflatedSum = "downlink_session_conflated_total"
)

// keyless are the updates that have no key: nothing makes them needless.
func keyless(n int) bool { return n%1000 == 500 }

// publishUpdates publishes 10,000 events of a kilobyte for "demo", numbered, with
// ten keys in turns, and returns the ID of the last.
func publishUpdates(t *testing.T, g *testkit.Gateway) (last string) {
	t.Helper()
	var lines strings.Builder
	for n := range updates {
		key := fmt.Sprintf(`"key":"board-%d",`, n%boards)
		if keyless(n) {
			key = ""
		}
		fmt.Fprintf(&lines, `{"device":"demo","type":"t",%s"text":"%d %s"}`+"\n", key, n, strings.Repeat("x", 1000))
	}
	status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/x-ndjson", lines.String())
	if status != 200 || strings.Contains(answer, `"error"`) {
		t.Fatalf("publishing: %d %.500s", status, answer)
	}
	answers := strings.Split(strings.TrimSpace(answer), "\n")
	return idIn(t, answers[len(answers)-1])
}

// neededUpdates are those that a device must get: what has no key, and the last of
// each.
func neededUpdates() (all []int) {
	for n := range updates {
		if keyless(n) || n >= updates-boards {
			all = append(all, n)
		}
	}
	return all
}

// numberOf is the number of an update, -1 if a line holds none.
func numberOf(line string) int {
	text, ok := strings.CutPrefix(line, "data: ")
	number, _, numbered := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	if !ok || !numbered || err != nil {
		return -1
	}
	return n
}

// received are the numbers of the updates on a stream, up to the last one.
func received(s *testkit.Stream) (got []int) {
	for line := range strings.Lines(s.Until(fmt.Sprintf("data: %d ", updates-1))) {
		if n := numberOf(line); n >= 0 {
			got = append(got, n)
		}
	}
	return got
}

// TestConflation: a device takes nothing while 10,000 updates of ten keys are
// published. It gets the last of each, in order, and everything that has no key;
// what it doesn't get is counted. Whoever comes later gets nothing else.
func TestConflation(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) { t.Parallel(); conflate(t, testkit.StartRedis(t).URL()) })
	t.Run("embedded", func(t *testing.T) { onlyOnce(t); t.Parallel(); conflate(t, "file:"+t.TempDir()) })
}

func conflate(t *testing.T, log string) {
	t.Helper()
	// A hot window of 16 KiB a shard: what comes later is read from the log.
	g := program.StartGateway(t, args("--log", log, "--write-timeout", "60s", "--hot-window-bytes", "1MiB")...)
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.Device, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil { // or the kernel would read ahead
		t.Fatal(err)
	}
	slow := testkit.RawStream(t, conn)
	if _, err := fmt.Fprint(conn, "GET /events?device=demo HTTP/1.1\r\nHost: gateway\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	header := slow.Until("id: ")
	cursor := strings.TrimSpace(header[strings.LastIndex(header, "id: ")+len("id: "):])
	slow.Until(resync)

	last := publishUpdates(t, g)
	testkit.Eventually(t, "the session has been offered everything", func() bool {
		r := explainDemo(t, g)
		return r.Sessions[0].State == "live" && r.Position == last
	})
	if s := explainDemo(t, g).Sessions[0]; s.Pending > 2*boards || s.Conflated <= updates/2 || float64(s.Conflated) != g.Metric(conflatedSum) {
		t.Errorf("%d events wait; %d are said to be left out, %v are counted", s.Pending, s.Conflated, g.Metric(conflatedSum))
	}
	if g.Metric("downlink_session_behind_total") != 0 {
		t.Error("a flood of few keys went to the log")
	}
	got := received(slow)
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) > updates/2 {
		t.Errorf("%d updates came, in order: %v", len(got), slices.IsSorted(got))
	}
	for _, n := range neededUpdates() {
		if !slices.Contains(got, n) {
			t.Errorf("update %d never came", n)
		}
	}
	if sum := float64(len(got)) + g.Metric(conflatedSum); sum != updates {
		t.Errorf("%d came and %v are counted as left out, of %d", len(got), g.Metric(conflatedSum), updates)
	}
	slow.Close()
	testkit.Eventually(t, "the trail says what was left out", func() bool {
		lately := explainDemo(t, g).Trail
		return len(lately) > 0 && strings.HasPrefix(lately[0].Detail, "left out ")
	})
	for what, query := range map[string]string{"resumed": "", "earliest": "&from=earliest"} {
		since := cursor
		if query != "" {
			since = ""
		}
		s := testkit.Open(t, g.Device+"/events?device=demo"+query, since)
		if got := received(s); !slices.Equal(got, neededUpdates()) {
			t.Errorf("%s: got %d updates: %v", what, len(got), got)
		}
		s.Close()
	}
	if got := polledUpdates(t, g, cursor); !slices.Equal(got, neededUpdates()) {
		t.Errorf("polled: got %d updates: %v", len(got), got)
	}
}

func explainDemo(t *testing.T, g *testkit.Gateway) (r explain.Report) {
	t.Helper()
	if status, text := testkit.Get(t, g.Backend+"/v1/devices/demo"); status != 200 || json.Unmarshal([]byte(text), &r) != nil {
		t.Fatalf("asking for the device: %d %s", status, text)
	}
	return r
}

// polledUpdates polls until the last update has come.
func polledUpdates(t *testing.T, g *testkit.Gateway, cursor string) (got []int) {
	t.Helper()
	for len(got) == 0 || got[len(got)-1] != updates-1 {
		var answer struct {
			Events []struct{ Data string }
			Cursor string
		}
		status, text := testkit.Get(t, g.Device+"/poll?device=demo&wait=60&lastEventId="+cursor)
		if status != 200 || json.Unmarshal([]byte(text), &answer) != nil || len(answer.Events) == 0 {
			t.Fatalf("polling after %s: %d %.300s", cursor, status, text)
		}
		for _, e := range answer.Events {
			got = append(got, numberOf("data: "+e.Data))
		}
		cursor = answer.Cursor
	}
	return got
}
