package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openLab(t *testing.T) *lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	l, err := newLab(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := l.end(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestNothingStaysBehind: a server's child that has made itself a group of its
// own, and ignores SIGTERM, ends with the lab all the same.
func TestNothingStaysBehind(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are looked up in /proc, where measuring works")
	}
	l, err := newLab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script := `setsid sh -c 'trap "" TERM; echo $$ > grandchild; while :; do sleep 1; done' &
		trap "exit 0" TERM; while :; do sleep 0.05; done`
	p, err := l.start("sh", "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	err = l.ready(p, func() error {
		content, err := os.ReadFile(l.path("grandchild"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, _, alive := statOf(pid); !alive {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there (%v)", err)
	}
}

func TestServerThatEndsIsReported(t *testing.T) {
	l := openLab(t)
	p, err := l.start("sh", "sh", "-c", "echo no room >&2; exit 1")
	if err != nil {
		t.Fatal(err)
	}
	err = l.ready(p, func() error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("error %v, want one with what it printed", err)
	}
}

// TestContenders starts each contender that is on this machine as each duty
// asks, and wants what it started to be gone afterwards.
func TestContenders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer")
	}
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]struct {
		there func() bool
		start func(duty) func(*lab) (*target, error)
	}{
		"Nchan":      {func() bool { _, err := os.Stat(nchanModule); return err == nil }, nchan},
		"Centrifugo": {func() bool { _, err := os.Stat(filepath.Join(bin, "centrifugo")); return err == nil }, site{bin: bin}.centrifugo},
		"Pushpin":    {func() bool { _, err := exec.LookPath("pushpin"); return err == nil }, pushpin},
	}
	for name, peer := range peers {
		for _, d := range []duty{{broadcast: true}, {store: onRedis, resume: true}, {jwt: true}} {
			t.Run(fmt.Sprintf("%s %+v", name, d), func(t *testing.T) {
				if !peer.there() {
					t.Skip("not installed; see scripts/bench-deps")
				}
				l := openLab(t)
				target, err := peer.start(d)(l)
				if err != nil {
					t.Fatal(err)
				}
				if len(target.watch["server"]) == 0 || (d.store == onRedis) != (len(target.watch["redis"]) == 1) && name != "Pushpin" {
					t.Errorf("watched are %v", target.watch)
				}
			})
		}
	}
}

func TestEscapedKeepsPlaceholders(t *testing.T) {
	got := escaped(`{"subs":{"{device}":{"offset":{offset}}}}`)
	want := `%7B%22subs%22%3A%7B%22{device}%22%3A%7B%22offset%22%3A{offset}%7D%7D%7D`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSelectMetrics(t *testing.T) {
	got := selectMetrics("# HELP go_goroutines x\ngo_goroutines 12\nsse_active_connections 0\n" +
		"downlink_resync_total{reason=\"no-cursor\"} 3\nother 4\ndownlink_catchup_laps_total 1e+02\n")
	want := values{"go_goroutines": 12, `downlink_resync_total{reason="no-cursor"}`: 3, "downlink_catchup_laps_total": 100}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestVersionIn(t *testing.T) {
	for text, want := range map[string]string{
		"Redis server v=7.0.15 sha=0": "7.0.15",
		"nginx version: nginx/1.22.1": "1.22.1",
		"1:1.3.6+dfsg-2":              "1.3.6+dfsg-2",
		"pushpin 1.36.0":              "1.36.0",
	} {
		if got := versionIn(text); got != want && !strings.HasSuffix(got, want) {
			t.Errorf("version in %q = %q, want %q", text, got, want)
		}
	}
}

func TestReadReport(t *testing.T) {
	exit := func(code int) error { return exec.Command("sh", "-c", fmt.Sprintf("exit %d", code)).Run() }
	path := filepath.Join(t.TempDir(), "load.json")
	for _, test := range []struct {
		name   string
		report string
		run    error
		wrong  string // in the error; empty: none
	}{
		{"a good run", `{"connect":{"asked":100,"connected":100}}`, nil, ""},
		{"one device failed to connect", `{"connect":{"asked":100,"connected":99}}`, exit(4), ""},
		{"many devices failed", `{"connect":{"asked":100,"connected":90}}`, exit(4), "90 of 100 devices"},
		{"it couldn't run", `{"connect":{"asked":100,"connected":100}}`, exit(2), "exit status 2"},
		{"it wrote half a report", `{"connect":`, nil, "report"},
	} {
		if err := os.WriteFile(path, []byte(test.report), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readReport(path, test.run)
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.wrong)
		}
	}
}
