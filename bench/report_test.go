package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPageIsInStep: the page in the repository is what the results give.
func TestPageIsInStep(t *testing.T) {
	root := ".."
	page, plots, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), page); diff != "" {
		t.Errorf("%s isn't what bench/results give; run `go run ./bench report` (-page +results):\n%s", pagePath, diff)
	}
	for name, svg := range plots {
		if have, err := os.ReadFile(filepath.Join(root, plotDir, name)); err != nil || string(have) != svg {
			t.Errorf("%s is out of step (%v); run `go run ./bench report`", name, err)
		}
	}
}

func TestReport(t *testing.T) {
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(pagePath, "# By hand\n\n"+beginMark+"\nold\n"+endMark+"\n\nBy hand, too.\n")
	write(plotDir+"/gone.svg", "<svg/>")
	write(resultsDir+"/broadcast.json", `{"table":"broadcast","when":"2026-11-30","machine":{"cores":"2"},"versions":{"Nchan":"1.3.6"},"runs":[
{"entry":"Downlink","round":1,"values":{"receive.latency_ms.p50":90,"receive.latency_ms.p99":100,"receive.received":1000,"watched.server.cpu_seconds.run":0.02}},
{"entry":"Nchan","round":1,"values":{"receive.latency_ms.p50":80,"receive.latency_ms.p99":500,"receive.received":1000,"receive.lost":3,"watched.server.cpu_seconds.run":0.04}}]}`)
	if err := report(root); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	for _, want := range []string{
		"# By hand\n", "By hand, too.", "cores 2", "Nchan 1.3.6",
		"p50, ms: Downlink has 90, Nchan 80.",       // what is slower, first
		"| p99, ms | 100 | 500 |",                   // the table
		"0.20 × Nchan: 100 against 500 | reached |", // the goal
		"| lost | 0 | 3 |",                          // a peer's ledger
		"| memory | Downlink 10,000: user memory, KiB a connection at most 3 |  | not measured |", // no figure without a run
		"benchmarks/broadcast-p99-ms.svg",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "old") || strings.Contains(page, "p99, ms: Downlink has") {
		t.Errorf("the page says what isn't so:\n%s", page)
	}
	if _, err := os.Stat(filepath.Join(root, plotDir, "gone.svg")); err == nil {
		t.Error("a plot that belongs to no table is still there")
	}
	checkXML(t, filepath.Join(root, plotDir, "broadcast-p99-ms.svg"))
}

// checkXML reads a plot as a browser would.
func checkXML(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bars := 0
	for dec := xml.NewDecoder(f); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 2 {
		t.Errorf("%s has %d bars, want 2", path, bars)
	}
}

func TestReportWithoutMarks(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, pagePath), []byte("# By hand\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := report(root); err == nil || !strings.Contains(err.Error(), "marks") {
		t.Errorf("error %v, want one that names the marks", err)
	}
}

// TestTablesHoldTogether: what a table names is there.
func TestTablesHoldTogether(t *testing.T) {
	for _, table := range tables(scale{}, site{}) {
		seen := map[string]bool{}
		for _, m := range table.entries {
			if seen[m.name] {
				t.Errorf("%s has two entries %q", table.name, m.name)
			}
			seen[m.name] = true
			if m.start == nil || len(m.load) == 0 {
				t.Errorf("%s: %s lacks a start or a load", table.name, m.name)
			}
		}
		for _, label := range table.plots {
			table.column(label) // panics if it isn't there
		}
		r := &result{}
		for _, m := range table.entries {
			r.Runs = append(r.Runs, record{Entry: m.name, Round: 1, Values: values{"after.go_goroutines": 1, "receive.received": 1, "publish.accepted": 1, "publish.seconds": 1, "connect.connected": 1}})
		}
		for _, g := range table.goals {
			if v := g.judge(table, r); v.outcome == unmeasured && v.detail != "" {
				t.Errorf("%s: %s: %s", table.name, g.text, v.detail)
			}
		}
	}
}
