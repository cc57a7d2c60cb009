package config_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"downlink/internal/config"
	"downlink/internal/limits"
)

// load parses a command line as a start does, and returns the loader too.
func load(t *testing.T, args, environ []string) (*config.Loader, *config.Config) {
	t.Helper()
	c := new(config.Config)
	l := config.NewLoader(environ)
	parser, err := kong.New(c, append(l.Options(), kong.Name("downlink"))...)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err == nil {
		err = l.Check(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l, c
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a changed file gives is what a start with it would give.
func TestRereadIsWhatAStartWouldHave(t *testing.T) {
	environ := []string{"DOWNLINK_RETRY=2s"}
	for name, text := range map[string]string{
		"the same":        "window: 1m\nstreams_per_device: 5\n",
		"other values":    "window: 2m\nstreams_per_device: 6\nallow_eviction: true\njwt_issuer: a, b\nhot_window_bytes: 2MiB\n",
		"gone":            "retry: 9s\n",
		"beaten by both":  "retry: 9s\nkeepalive: 9s\nstreams_per_device: 7\n",
		"empty":           "",
		"comments":        "# nothing\n",
		"taken back once": "streams_per_device: 4\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "window: 1m\nstreams_per_device: 5\n")
			args := []string{loopback, "--keepalive", "3s", "--config", path}
			l, c := load(t, args, environ)
			rewrite(t, path, text)
			again, got, err := l.Reread(c)
			if err != nil {
				t.Fatal(err)
			}
			wantLoader, want := load(t, args, environ)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(wantLoader.Settings(want), again.Settings(got), cmp.AllowUnexported(config.Key{})); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(wantLoader.Limits(want), again.Limits(got)); diff != "" {
				t.Error(diff)
			}
			// And it can be read again.
			rewrite(t, path, "streams_per_device: 11\n")
			if _, got, err = again.Reread(got); err != nil || got.Streams != 11 {
				t.Errorf("%d %v", got.Streams, err)
			}
		})
	}
}

func TestRereadRefusesTheWholeFile(t *testing.T) {
	path := write(t, "streams_per_device: 5\n")
	l, c := load(t, []string{loopback, "--config", path}, nil)
	before := *c
	for text, want := range map[string]string{
		"streams_per_device: 6\nstreams_per_devise: 7\n": "streams_per_devise",
		"streams_per_device: 6\npending_events: 0\n":     "pending_events \"0\" (" + path + ":2) isn't allowed",
		"streams_per_device: many\n":                     "isn't a whole number",
		"streams_per_device: [\n":                        "isn't valid YAML",
		"streams_per_device: 6\nsweep_interval: 30m\n":   "is longer than window",
	} {
		rewrite(t, path, text)
		_, _, err := l.Reread(c)
		var ps config.Problems
		if !errors.As(err, &ps) || !strings.Contains(ps.Error(), want) || len(ps) != 1 {
			t.Errorf("%q: %v", text, err)
		}
		if *c != before {
			t.Errorf("%q: it has changed what was read before", text)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Reread(c); err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Errorf("without a file: %v", err)
	}
}

// A limit says where its value comes from, and what the file asks for in vain.
func TestLimitsHaveOriginsAndWhatStandsBeside(t *testing.T) {
	path := write(t, "streams_per_device: 5\npending_events: 7\nhot_window_bytes: 64MiB\naccept_rate: 3\n")
	l, c := load(t, []string{loopback, "--pending-events=8", "--hot-window-bytes", "64MiB", "--config", path}, []string{"DOWNLINK_ACCEPT_RATE=4"})
	got := map[string]limits.Setting{}
	for _, s := range l.Limits(c) {
		got[s.Name] = s
	}
	for name, want := range map[string]limits.Setting{
		"streams_per_device": {Value: 5, Origin: "file", Where: path + ":1"},
		"pending_events":     {Value: 8, Origin: "flag", Where: "--pending-events", Beside: path + ":2 asks for 7, but --pending-events wins over the file"},
		"hot_window_bytes":   {Value: 64 << 20, Origin: "flag", Where: "--hot-window-bytes"},
		"accept_rate":        {Value: 4, Origin: "environment", Where: "DOWNLINK_ACCEPT_RATE", Beside: path + ":4 asks for 3, but DOWNLINK_ACCEPT_RATE wins over the file"},
		"max_event_bytes":    {Value: 1 << 20, Origin: "default"},
	} {
		want.Name = name
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDifferencesAreSettingsThatAreNoLimits(t *testing.T) {
	_, a := load(t, []string{loopback}, nil)
	b := *a
	b.Keepalive++
	b.Streams++
	b.AllowEvict = true
	b.Governor = "off"
	if got := config.Differences(a, &b); !slices.Equal(got, []string{"allow_eviction", "keepalive"}) {
		t.Errorf("%v", got)
	}
}

// A suggestion is a word that might have been meant.
func TestSuggestionsAreNear(t *testing.T) {
	for written, want := range map[string]string{
		"streams-per-device": "streams_per_device", "widow": "window", "keep_alive": "keepalive", "max_conections": "max_connections",
		"port": "", "hosts": "", "timeout": "", "x": "", "lag": "log",
	} {
		path := write(t, written+": 1\n")
		got := strings.Join(problems(t, []string{loopback, "--config", path}, nil), "\n")
		if asks := strings.Contains(got, "did you mean"); asks != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", written, got)
		}
	}
}
