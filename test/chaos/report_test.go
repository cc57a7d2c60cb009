package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A result is one run, as it is kept in test/chaos/results.
type result struct {
	Topology     string         `json:"topology"`
	Seed         uint64         `json:"seed"`
	Settings     []string       `json:"settings"` // of the gateways, that the seed chose
	Build        string         `json:"build"`    // race or plain
	Seconds      int            `json:"seconds"`  // in which faults were injected
	Gateways     int            `json:"gateways"`
	Devices      int            `json:"devices"`
	Faults       int            `json:"faults"`
	Kinds        map[string]int `json:"kinds"` // faults by kind
	Acknowledged int            `json:"acknowledged"`
	Handled      int            `json:"handled"`   // by all devices together
	Anew         int            `json:"anew"`      // came again in a new entry, because the log had lost the first
	Conflated    int            `json:"conflated"` // left out, because a newer one of the key came
	Resyncs      map[string]int `json:"resyncs"`   // that were justified, without each device's first
	Stall        float64        `json:"stall_s"`   // longest time in which no device got anything
	Wait         float64        `json:"wait_s"`    // longest from acknowledgement to a steady device
	Violations   int            `json:"violations"`
}

const (
	resultsDir = "results"
	page       = "../../docs/reliability.md"
	beginMark  = "<!-- Written from test/chaos/results by `go test ./test/chaos -run TestReport -update`; don't edit. -->"
	endMark    = "<!-- End of what is written from test/chaos/results. -->"
)

func (res result) write(tb testing.TB) {
	tb.Helper()
	text, err := json.MarshalIndent(res, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(resultsDir, fmt.Sprintf("%s-%d.json", res.Topology, res.Seed)), append(text, '\n'), 0o644)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// TestReport: the page shows the results that are kept.
func TestReport(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(resultsDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []result
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var res result
		if err := json.Unmarshal(text, &res); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if res.Violations > 0 {
			t.Errorf("%s has %d violations: mend what it found, and run it again", name, res.Violations)
		}
		all = append(all, res)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), beginMark)
	_, tail, ended := strings.Cut(rest, endMark)
	if !ok || !ended {
		t.Fatalf("%s has lost its marks %q and %q", page, beginMark, endMark)
	}
	want := head + beginMark + "\n\n" + tables(all) + "\n" + endMark + tail
	if want == string(text) {
		return
	}
	if !*updateFlag {
		t.Fatalf("%s doesn't show the results that are kept: go test ./test/chaos -run TestReport -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tables shows all runs, and how often each kind of fault struck.
func tables(all []result) string {
	var b strings.Builder
	slices.SortFunc(all, func(a, b result) int {
		if a.Topology != b.Topology {
			return slices.Index(topologies(), a.Topology) - slices.Index(topologies(), b.Topology)
		}
		return strings.Compare(utoa(a.Seed), utoa(b.Seed))
	})
	b.WriteString("| topology | seed | settings | faults | minutes | acknowledged | handled | stored anew | justified resyncs | longest without a delivery | longest wait of an event |\n")
	b.WriteString("| --- | --: | --- | --: | --: | --: | --: | --: | --- | --: | --: |\n")
	sum := result{Kinds: map[string]int{}, Resyncs: map[string]int{}}
	for _, res := range all {
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %.1f | %s | %s | %s | %s | %.1f s | %.1f s |\n", res.Topology, res.Seed,
			spoken(res.Settings), res.Faults, float64(res.Seconds)/60, thousands(res.Acknowledged), thousands(res.Handled),
			thousands(res.Anew), counts(res.Resyncs), res.Stall, res.Wait)
		sum.Faults += res.Faults
		sum.Seconds += res.Seconds
		sum.Acknowledged += res.Acknowledged
		sum.Handled += res.Handled
		sum.Anew += res.Anew
		sum.Stall, sum.Wait = max(sum.Stall, res.Stall), max(sum.Wait, res.Wait)
		add(sum.Kinds, res.Kinds)
		add(sum.Resyncs, res.Resyncs)
	}
	fmt.Fprintf(&b, "| **%d runs** | | | %s | %.1f | %s | %s | %s | %s | %.1f s | %.1f s |\n\n", len(all), thousands(sum.Faults),
		float64(sum.Seconds)/60, thousands(sum.Acknowledged), thousands(sum.Handled), thousands(sum.Anew), counts(sum.Resyncs), sum.Stall, sum.Wait)
	b.WriteString("| fault | times |\n| --- | --: |\n")
	for _, kind := range slices.Sorted(maps.Keys(sum.Kinds)) {
		fmt.Fprintf(&b, "| %s | %d |\n", kind, sum.Kinds[kind])
	}
	return b.String()
}

// spoken leaves out the hyphens of a command line, and joins what belongs together.
func spoken(args []string) string {
	var pairs []string
	for i := 0; i+1 < len(args); i += 2 {
		pairs = append(pairs, strings.ReplaceAll(strings.TrimPrefix(args[i], "--"), "-", "_")+" "+args[i+1])
	}
	return strings.Join(pairs, ", ")
}

func counts(by map[string]int) string {
	if len(by) == 0 {
		return "0"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s %s", name, thousands(by[name])))
	}
	return strings.Join(parts, ", ")
}

func add(to, from map[string]int) {
	for name, n := range from {
		to[name] += n
	}
}

// thousands puts a comma between groups of digits.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
