package main

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"downlink/internal/config"
	"downlink/internal/limits"
)

// limitsOf is a back end that has nothing but limits.
func limitsOf(t *testing.T) (url string, registry *limits.Registry) {
	registry = limits.New(config.Limits(), limits.Setting{Name: "streams_per_device", Value: 7, Origin: "file", Where: "d.yml:3"})
	url, _ = backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			limits.Apply(registry, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
			return
		}
		limits.Show(registry).ServeHTTP(w, r)
	})
	return url, registry
}

func TestLimitsAreShown(t *testing.T) {
	url, registry := limitsOf(t)
	registry.Uses("hot_window_bytes", func() float64 { return 3 << 20 })
	registry.ReadFile(limits.File{Path: "d.yml", Error: "broken\ntwice", Restart: []string{"listen", "window"}})
	for _, c := range []struct {
		args      string
		with      []string
		otherwise []string
	}{
		{"", []string{"streams_per_device 7 streams 7 streams d.yml:3 while running", "hot_window_bytes 64MiB 3MiB 64MiB default", "accept_rate no limit no limit", "max_header_bytes 16KiB 16KiB default by a restart", "that are fixed", "d.yml can't be used", "waiting for a restart: listen, window"}, []string{"json_depth"}},
		{"--all", []string{"json_depth 10000 levels", "never"}, []string{"that are fixed"}},
		{"streams-per", []string{"streams_per_device (streams)", "allowed: 1 to 1000", "at it: The new stream is refused", "price:"}, []string{"accept_rate"}},
		{"json_depth", []string{"json_depth 10000 levels", "fixed in this version"}, nil},
		{"--json", []string{`"name":"streams_per_device"`}, []string{"COUNTS"}},
		{"--set streams_per_device=9 --set hot_window_bytes=1MiB", []string{"streams_per_device 9 streams 9 streams api", "hot_window_bytes 1MiB", "the configuration says 7 (d.yml:3)"}, []string{"accept_rate"}},
		{"--unset streams_per_device", []string{"streams_per_device 7 streams 7 streams d.yml:3"}, []string{"api"}},
	} {
		code, out, errs := execute(t, "", nil, append([]string{"limits", "--backend", url}, strings.Fields(c.args)...)...)
		words := strings.Join(strings.Fields(out), " ")
		if code != exitDone {
			t.Errorf("%s: %d %s", c.args, code, errs)
		}
		for _, want := range c.with {
			if !strings.Contains(words, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, out)
			}
		}
		for _, never := range c.otherwise {
			if strings.Contains(words, never) {
				t.Errorf("%s: %q in\n%s", c.args, never, out)
			}
		}
	}
}

func TestLimitsThatCantBeShownOrChanged(t *testing.T) {
	url, _ := limitsOf(t)
	stranger, _ := backend(t, one)
	nobody, _ := backend(t, unavailable)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--backend ftp://u:hunter2@h", exitUsage, "--backend isn't an address"},
		{"--backend http://127.0.0.1:1", exitFailed, "can't be reached"},
		{"--backend " + stranger, exitFailed, "is --backend the back-end port of a gateway?"},
		{"--backend " + nobody, exitFailed, "can't be reached"},
		{"--backend " + url + " --set streams_per_device", exitUsage, "isn't NAME=VALUE"},
		{"--backend " + url + " --set accept_rate=1 --unset accept_rate", exitUsage, "stands twice"},
		{"--backend " + url + " --set accept_rate=fast", exitRefused, "write a whole number of connections/s"},
		{"--backend " + url + " --set no_such=1", exitRefused, "no_such is not a limit"},
		{"--backend " + url + " no_such", exitUsage, "no limit's name holds"},
	} {
		code, _, errs := execute(t, "", nil, append([]string{"limits"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: %d %s", c.args, code, errs)
		}
	}
}
