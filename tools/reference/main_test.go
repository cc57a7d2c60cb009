package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/config"
)

func TestPagesAreWhatTheCodeSays(t *testing.T) {
	if err := run("../..", true, pages()); err != nil {
		t.Error(err)
	}
}

func TestAChangedPageIsFound(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"docs", "deploy/helm/downlink/files"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join("../..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "docs", "reference", "errors.md")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, 'x'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []page
	for _, p := range pages() {
		if p.name != "docs/reference/command-line.md" { // builds the program
			all = append(all, page{p.name, func(string) ([]byte, error) { return p.text("../..") }})
		}
	}
	err = run(root, true, all)
	if err == nil || strings.Count(err.Error(), "isn't what the code says") != 1 || !strings.Contains(err.Error(), "reference/errors.md") {
		t.Errorf("%v", err)
	}
}

// A command that the overview lists has a section of its own.
func TestEveryCommandIsShown(t *testing.T) {
	found := commandsIn([]byte("Usage\n\nCommands:\n  serve [flags]\n    Run it.\n\n  token make --device=ID [flags]\n    Make\n    one.\n\n  explain <device> [flags]\n    Say.\n\nRun more.\n"))
	if strings.Join(found, ", ") != "serve, token make, explain" {
		t.Errorf("found %q", found)
	}
	page, err := os.ReadFile("../../docs/reference/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"serve", "explain", "disconnect", "token secret", "health", "limits", "drain", "version"} {
		if !strings.Contains(string(page), "\n## downlink "+command+"\n") {
			t.Errorf("downlink %s has no section", command)
		}
	}
}

// The sample file is a file that the gateway takes, and changes nothing.
func TestSampleIsValidAndChangesNothing(t *testing.T) {
	text, err := sample("")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "downlink.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	with, err := config.Load([]string{"--insecure-no-auth", "--config", path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	without, err := config.Load([]string{"--insecure-no-auth"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	with.File = ""
	if *with != *without {
		t.Errorf("%+v\nwant %+v", with, without)
	}
}

func TestMetricsAreDescribedWithTheirLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "downlink_x_total", Help: "a|b"}, []string{"result"})
	v.WithLabelValues("bad")
	v.WithLabelValues("good")
	r.MustRegister(v, prometheus.NewGauge(prometheus.GaugeOpts{Name: "other_x", Help: "not ours"}))
	got, err := describeMetrics(r)
	if err != nil || !strings.Contains(string(got), "| `downlink_x_total` | counter | `result`: bad, good | a\\|b |") || strings.Contains(string(got), "other_x") {
		t.Errorf("%v\n%s", err, got)
	}
}
