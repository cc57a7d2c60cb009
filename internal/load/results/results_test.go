package results

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() *Report {
	h := NewHistogram()
	for ms := range 1000 {
		Record(h, time.Duration(ms)*time.Millisecond)
	}
	Record(h, time.Hour) // beyond what is told apart
	Record(h, -time.Second)
	l := Summarize(h, true)
	return &Report{
		Scenario: "targeted", Args: map[string]any{"devices": 7},
		Connect: Connect{Latency: l}, Publish: Publish{Sent: 1, Latency: l}, Receive: Receive{Latency: l, Scheduled: l},
		Storm: &Storm{}, Closed: Closed{Errors: map[string]int{}},
		Watched:  map[string]Watched{`<gw & "co">`: {CPU: map[string]float64{"run": 1}}},
		Kernel:   Kernel{TCP: map[string]int64{}, Slab: map[string]int64{}},
		Series:   []Moment{{Second: 1, Received: 5}, {Second: 2, Received: 50_000, CPU: map[string]float64{`<gw & "co">`: 1}}},
		Failures: []string{"<script>alert(1)</script>"},
	}
}

func TestPercentiles(t *testing.T) {
	l := example().Receive.Latency
	if l.Count != 1002 || l.P50 < 490 || l.P50 > 510 || l.P99 < 980 || l.P99 > 1000 || l.Max < 599_000 || l.Max > 601_000 {
		t.Errorf("%+v", l)
	}
	if empty := Summarize(NewHistogram(), true); empty.Max != 0 || empty.P99 != 0 || empty.Curve != nil {
		t.Errorf("%+v", empty)
	}
}

// TestNamesAreKept: scripts read these.
func TestNamesAreKept(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"connect": "asked connected failed latency_ms per_second seconds",
		"publish": "accepted latency_ms per_second refused seconds sent unknown",
		"receive": "disordered expected foreign latency_ms lost others per_second received repeated resyncs scheduled_latency_ms seconds unmarked warmup",
		"storm":   "complete connect_latency_ms connected connected_seconds devices expected missed per_second received seconds",
		"closed":  "by_server by_us errors stalled_by_server",
		"kernel":  "slab_bytes tcp_mem_bytes",
		"self":    "cpu_seconds cpu_seconds_by_phase pss_bytes",
	} {
		var part map[string]any
		if err := json.Unmarshal(all[name], &part); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, strings.Join(sorted(part), " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		delete(all, name)
	}
	if diff := cmp.Diff("args failures interrupted passed scenario series started watched", strings.Join(sorted(all), " ")); diff != "" {
		t.Error(diff)
	}
}

func sorted[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestPage: nothing that a server or a command line said becomes markup, and
// nothing is drawn outside of the plots.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "<gw", `"co"`, "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
	if n := strings.Count(page, "<svg"); n != 4 {
		t.Errorf("%d plots", n)
	}
	if !strings.Contains(page, "&lt;gw &amp; &#34;co&#34;&gt;</text>") {
		t.Error("the watched process has no name in a plot")
	}
	var empty bytes.Buffer
	if err := (&Report{}).WriteHTML(&empty); err != nil || strings.Contains(empty.String(), "<svg") {
		t.Errorf("a report of nothing: %v", err)
	}
}
