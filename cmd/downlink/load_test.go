package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"downlink/internal/load/results"
)

// startStreams is a server that answers every device with a stream that stays
// silent, and accepts what is published.
func startStreams(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestLoadReports(t *testing.T) {
	url := startStreams(t)
	dir := t.TempDir()
	page, secret := filepath.Join(dir, "r.html"), filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := execute(t, "", nil, "load", "idle", "--url", url+"/?t={token}", "--devices", "20", "--settle", "10ms", "--duration", "10ms",
		"--header", "Authorization: hunter2", "--token-secret-file", secret, "--backend", "http://u:hunter2@h", "--json", "-", "--html", page)
	var r struct {
		Scenario string
		Args     map[string]any
		Connect  struct{ Asked, Connected int }
		Passed   *bool
		Failures []string
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
		t.Fatalf("%d %v %s %s", code, err, out, errs)
	}
	if r.Scenario != "idle" || r.Connect.Asked != 20 || r.Connect.Connected != 20 || r.Passed == nil || !*r.Passed || r.Failures == nil || r.Args["devices"] != 20.0 {
		t.Errorf("%+v", r)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), "<svg") {
		t.Errorf("%v %s", err, html)
	}
	if all := out + errs + string(html); strings.Contains(all, "hunter2") {
		t.Errorf("a secret shows in %s", all)
	}
	code, out, errs = execute(t, "", nil, "load", "idle", "--url", url, "--devices", "20", "--settle", "10ms", "--duration", "10ms")
	if code != exitDone || !strings.Contains(out, "20 of 20") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// TestLoadFailsByThresholds: what is accepted and never delivered is lost.
func TestLoadFailsByThresholds(t *testing.T) {
	url := startStreams(t)
	code, out, errs := execute(t, "", nil, "load", "targeted", "--url", url, "--backend", url, "--devices", "5", "--rate", "100", "--duration", "500ms", "--grace", "50ms", "--max-loss", "0", "--quiet")
	if code != exitMissed || !strings.Contains(errs, "were lost, allowed are 0") || !strings.Contains(out, "lost: device") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, _, errs = execute(t, "", nil, "load", "targeted", "--url", url, "--backend", url, "--devices", "5", "--rate", "100", "--duration", "500ms", "--grace", "50ms", "--quiet")
	if code != exitDone || errs != "" {
		t.Errorf("without a threshold: %d %s", code, errs)
	}
}

// TestInterruptedLosesNothing: what wasn't waited for isn't called lost.
func TestInterruptedLosesNothing(t *testing.T) {
	r := &results.Report{Ended: true, Publish: results.Publish{Sent: 9, Accepted: 9}, Receive: results.Receive{Lost: 4, Losses: []string{"device 0: event 1"}}}
	var text, page strings.Builder
	if err := errors.Join(summarize(&text, r), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{text.String(), page.String()} {
		if !strings.Contains(got, "4 not received yet") || strings.Contains(got, "lost:") || strings.Contains(got, "4 lost") {
			t.Error(got)
		}
	}
	if !strings.Contains(page.String(), "Interrupted") {
		t.Error(page.String())
	}
}

func TestLoadRefusesWrongUse(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	for args, want := range map[string]string{
		"load":                                   "expected",
		"load rest":                              "must be one of",
		"load idle --devices 0":                  "--devices must be 1 or more",
		"load idle --watch gw":                   "isn't of the form NAME=PID",
		"load idle --capture x":                  "isn't of the form name=REGEXP",
		"load idle --ca-file /nowhere":           "--ca-file",
		"load idle --token-secret-file /nowhere": "--token-secret-file",
		"load broadcast --batch 0":               "--batch must be",
		"load targeted --publish-log redis://a --publish-url http://b": "exclude each other",
		"load targeted --publish-log redis://:hunter2@a,b":             "--publish-log takes one server",
		"load targeted --publish-url http://b --batch 2":               "one event a request",
		"load idle --json /nowhere/r --html /nowhere/p":                "/nowhere/p",
		"load targeted --backend ftp://b":                              "it as http://",
	} {
		code, _, errs := execute(t, "", nil, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
	fresh, old := filepath.Join(t.TempDir(), "fresh"), filepath.Join(t.TempDir(), "old")
	if err := os.WriteFile(old, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := execute(t, "", nil, "load", "idle", "--url", nobody, "--devices", "3", "--json", fresh, "--html", old); code != exitFailed || !strings.Contains(errs, "no device could connect") {
		t.Errorf("nobody there: %d %s", code, errs)
	}
	if kept, err := os.ReadFile(old); err != nil || string(kept) != "{}" {
		t.Errorf("a run without results has changed the last one's: %s %v", kept, err)
	}
	if _, err := os.Stat(fresh); !os.IsNotExist(err) {
		t.Errorf("a run without results has left a file: %v", err)
	}
}

// TestMaskedTemplates: a report shows a template's placeholders and no secret.
func TestMaskedTemplates(t *testing.T) {
	for given, want := range map[[2]string]string{
		{"publish-url", "http://u:hunter2@h/pub/{device}"}:   "http://u:***@h/pub/{device}",
		{"url", "http://h/sub/{device}?key=hunter2&id={id}"}: "http://h/sub/{device}?key=***&id={id}",
		{"url", "http://h/sub/{device}?hunter2"}:             "http://h/sub/{device}?***",
		{"publish-log", "redis://:hunter2@h:6379"}:           "redis://:***@h:6379",
		{"header", "Authorization: Bearer {token}"}:          "Authorization: Bearer {token}",
		{"publish-header", "X-Key: hunter2"}:                 "X-Key: ***",
		{"publish-body", `{"to":"{device}","is":{payload}}`}: `{"to":"{device}","is":{payload}}`,
	} {
		if got := maskTemplate(given[0], given[1]); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}
