package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/governor"
	"downlink/internal/governor/api"
)

// ballast is a signal.
type ballast struct{}

func (ballast) Name() string { return "redis_memory" }

func (ballast) Read(context.Context) (governor.Reading, error) {
	return governor.Reading{Value: 0.95}, nil
}

// governorOf is a back end that has nothing but a governor.
func governorOf(t *testing.T) (url string) {
	t.Helper()
	signals := []governor.Signal{{
		Probe: ballast{}, Unit: "ratio", Help: "h", Period: time.Second, Timeout: time.Second, Fresh: 10 * time.Second,
		Threshold: 0.8, Wall: 0.92, Levers: []string{governor.Publish},
	}}
	lever := governor.Lever{Name: governor.Publish, Unit: "entries/s", Set: func(governor.Position) {}, Maximum: func() float64 { return 1234 }}
	g, err := governor.New(governor.Options{
		Signals: signals, Settings: governor.Defaults(signals), Levers: []governor.Lever{lever},
		Metrics: governor.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := api.New(api.Options{Governor: func() *governor.Governor { return g }, Logger: slog.New(slog.DiscardHandler)})
	url, _ = backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			h.Patch(w, r)
			return
		}
		h.Show(w, r)
	})
	return url
}

// lowered is what a governor says that holds publishers back.
func lowered(t *testing.T) string {
	t.Helper()
	number := func(v float64) *float64 { return &v }
	v := api.View{State: governor.State{
		On: true,
		Levers: []governor.LeverState{
			{Name: "admission", Ratio: 0.1, Floor: 0.1, Maximum: number(1500), Unit: "connections", Use: number(0.42), Signal: "tail_lag", Why: "tail_lag is 2000 entries", Worst: "tail_lag", Verdict: governor.Over},
			{Name: "publish", Ratio: 0.455, Floor: 0.1, Unit: "entries/s", Signal: "redis_memory", Why: "redis_memory is 85 %", Worst: "redis_memory", Verdict: governor.Unknown},
		},
		Signals: []governor.SignalState{
			{Name: "redis_memory", Unit: "ratio", Verdict: governor.Unknown, Value: number(0.85), Threshold: 0.8, Wall: 0.92, Levers: []string{"publish"}, Age: number(31), Fresh: 20, Error: "it didn't answer in time"},
			{Name: "tail_lag", Unit: "entries", Verdict: governor.Over, Value: number(123456), Threshold: 1000, Levers: []string{"admission"}, Age: number(1), Fresh: 10, Partial: "shard\x1b[2J 7"},
			{Name: "pending_bytes", Unit: "bytes", Verdict: governor.None, None: "nothing to judge by", Levers: []string{}},
		},
	}, Patched: []api.Changed{{Name: "step", Before: 0.1, After: 0.2}}}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGovernorIsShownAndChanged(t *testing.T) {
	t.Parallel()
	url := governorOf(t)
	bad, _ := backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, lowered(t)) })
	for _, c := range []struct {
		args string
		with []string
	}{
		{"show --backend " + url, []string{"publish 100 % 1234 entries/s - 10 % - ", "redis_memory - 80 % 92 % unknown never publish"}},
		{"show --settings --backend " + url, []string{"step=0.1", "period=30s", "on=true", "signals.redis_memory.levers=publish", "signals.redis_memory.threshold=0.8"}},
		{"show --json --backend " + url, []string{`{"on":true,"levers":[{"name":"publish"`}},
		{"set step=0.2 period=1m signals.redis_memory.threshold=0.7 signals.redis_memory.levers= --backend " + url, []string{"period: 1m0s, before 30s", "signals.redis_memory.levers: , before publish", "signals.redis_memory.threshold: 0.7, before 0.8", "step: 0.2, before 0.1", "at this governor alone"}},
		{"set step=0.2 --backend " + url, []string{"Nothing has changed"}},
		{"set on=false --json --backend " + url, []string{`{"on":false,`}},
		{"show --backend " + url, []string{"The governor is off", "Changed at run time", "on: false, before true"}},
		{"show --backend " + bad, []string{
			"admission 10 % 1500 connections 42 % 10 % tail_lag", "publish 45.5 % - - 10 % redis_memory",
			"redis_memory 85 % 80 % 92 % unknown 31 s ago, too old publish", "tail_lag 123456 entries 1000 entries - over 1 s ago admission", "pending_bytes - - - none never -",
			"admission was lowered because tail_lag is 2000 entries, and is at its floor", "publish was lowered because redis_memory is 85 %, and stays where it is: redis_memory isn't known.",
			"redis_memory: it didn't answer in time", `tail_lag: shard\x1b[2J 7`, "pending_bytes: nothing to judge by", "step: 0.2, before 0.1",
		}},
	} {
		code, out, errs := execute(t, "", nil, append([]string{"governor"}, strings.Fields(c.args)...)...)
		words := strings.Join(strings.Fields(out), " ")
		for _, want := range c.with {
			if code != exitDone || !strings.Contains(words, want) {
				t.Errorf("%s: %d %s: no %q in\n%s", c.args, code, errs, want, out)
			}
		}
	}
}

// TestShownSettingsCanBeSet: show --settings is what set takes, and changes nothing.
func TestShownSettingsCanBeSet(t *testing.T) {
	t.Parallel()
	url := governorOf(t)
	_, out, _ := execute(t, "", nil, "governor", "show", "--settings", "--backend", url)
	args := append([]string{"governor", "set", "--backend", url}, strings.Split(strings.TrimSpace(out), "\n")...)
	if code, out, errs := execute(t, "", nil, args...); code != exitDone || !strings.Contains(out, "Nothing has changed") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

func TestGovernorThatCantBeShownOrChanged(t *testing.T) {
	t.Parallel()
	url := governorOf(t)
	stranger, _ := backend(t, one)
	nobody, _ := backend(t, unavailable)
	nothing, _ := backend(t, http.NotFound)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"show --backend ftp://u:hunter2@h", exitUsage, "--backend isn't an address"},
		{"show --backend http://127.0.0.1:1", exitFailed, "can't be reached"},
		{"show --backend " + stranger, exitFailed, "isn't a governor's"},
		{"show --backend " + nobody, exitFailed, "can't be reached"},
		{"show --backend " + nothing, exitRefused, "there is no governor at --backend"},
		{"set --backend " + url, exitUsage, "<setting>"},
		{"set step --backend " + url, exitUsage, "isn't NAME=VALUE"},
		{"set redis_memory.threshold=1 --backend " + url, exitUsage, "isn't NAME=VALUE"},
		{"set signals=1 --backend " + url, exitUsage, "isn't NAME=VALUE"},
		{"set signals.redis_memory=1 --backend " + url, exitUsage, "isn't NAME=VALUE"},
		{"set step=0.2 step=0.3 --backend " + url, exitUsage, "step stands twice"},
		{"set redis://u:hunter2@h --backend " + url, exitUsage, "isn't NAME=VALUE"},
		{"set step=3 --backend " + url, exitRefused, "step can't be 3"},
		{"set step=NaN --backend " + url, exitRefused, "step must be a number"},
		{"set stepp=0.2 --backend " + url, exitRefused, "stepp is no setting"},
		{"watch --backend ftp://u:hunter2@h", exitUsage, "--backend isn't an address"},
		{"watch --backend " + nothing, exitRefused, "there is no governor at --backend"},
		{"watch --backend " + stranger, exitRefused, "there is no governor at --backend"},
	} {
		code, _, errs := execute(t, "", nil, append([]string{"governor"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: %d %s", c.args, code, errs)
		}
	}
}

// A wire answers one request after the other as it is told, inside a bubble.
type wire struct {
	answers []func(r *http.Request) (*http.Response, error)
	asked   []string // by Last-Event-ID
}

func (s *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r.Header.Get("Last-Event-ID"))
	return s.answers[min(len(s.asked), len(s.answers))-1](r)
}

// says is a stream: it says the blocks of a text, half a minute apart, and then ends,
// or says nothing more.
func says(text string, ends bool) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		in, out := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = out.CloseWithError(r.Context().Err()) })
		go func() {
			for block := range strings.SplitAfterSeq(text, "\n\n") {
				_, _ = io.WriteString(out, block)
				time.Sleep(30 * time.Second) //nolint:forbidigo // in a bubble
			}
			if ends {
				_ = out.Close()
			}
		}()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in}, nil
	}
}

// TestGovernorIsWatched: each change is printed once, across lost, refused and
// silent connections, and why nothing comes is said once.
func TestGovernorIsWatched(t *testing.T) {
	t.Parallel()
	change := func(n int) string {
		return fmt.Sprintf("event: change\nid: %d-RUN\ndata: {\"number\":%[1]d,\"at\":\"2026-01-02T03:04:05Z\",\"lever\":\"publish\",\"kind\":\"fall\",\"before\":1,\"after\":0.9,\"maximum\":1234,\"unit\":\"entries/s\",\"why\":\"w%[1]d\\u001b\"}\n\n", n)
	}
	state := "event: state\ndata: " + lowered(t) + "\n\n"
	away := func(*http.Request) (*http.Response, error) {
		return nil, errors.New("nobody is there")
	}
	full := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"title":"As many follow"}`))}, nil
	}
	silent := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	script := func() *wire {
		return &wire{answers: []func(*http.Request) (*http.Response, error){
			away, away, full,
			says(state+change(1)+change(2), true),
			says(state, false), // silent
			silent,
			says(strings.Repeat(": all is as it was\n\n", 5), true), // and not
			says(state+"event: gap\ndata: {\"after\":2,\"next\":7}\n\n"+change(7), true),
			says(state+"event: gap\ndata: {\"after\":7,\"next\":1,\"restarted\":true}\n\n"+strings.ReplaceAll(change(1), "-RUN", "-NEXT")+strings.Repeat(": all is as it was\n\n", 100), false),
		}}
	}
	watch := func(t *testing.T, json bool) (s *wire, out, notes string) {
		synctest.Test(t, func(t *testing.T) {
			var o, e bytes.Buffer
			s = script()
			w := watcher{client: &http.Client{Transport: s}, at: "http://u:hunter2@h/", silence: time.Minute, out: &o, notes: &e, json: json}
			ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
			defer cancel()
			if err := w.follow(ctx); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour) //nolint:forbidigo // in a bubble: every stream has ended
			out, notes = o.String(), e.String()
		})
		return s, out, notes
	}
	s, out, notes := watch(t, false)
	if diff := cmp.Diff([]string{"", "", "", "", "2-RUN", "2-RUN", "2-RUN", "2-RUN", "7-RUN"}, s.asked[:9]); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	line := func(n int) string {
		return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local().Format(time.DateTime) + fmt.Sprintf("  publish fall: 100 %% to 90 %% (1234 entries/s): w%d\\x1b\n", n)
	}
	want := "now: admission 10 % by tail_lag, publish 45.5 % by redis_memory\n" + line(1) + line(2) +
		"4 changes between aren't remembered any more\n" + line(7) + "the governor was started again: what happened between isn't known\n" + line(1)
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	if strings.Count(notes, "nobody is there") != 1 || strings.Count(notes, "As many follow") != 1 || strings.Count(notes, "nothing came for 1m0s") != 1 || strings.Contains(notes, "hunter2") {
		t.Errorf("said: %s", notes)
	}
	_, out, _ = watch(t, true)
	for text := range strings.Lines(out) {
		var e struct {
			Event string
			Data  json.RawMessage
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Event == "" || len(e.Data) == 0 {
			t.Errorf("%v: %s", err, text)
		}
	}
	if n := strings.Count(out, "\n"); n != 10 {
		t.Errorf("%d lines of JSON, want 10:\n%s", n, out)
	}
}

func TestWhatIsMeasuredIsRead(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  string
	}{
		{12231, "bytes/s", "11.94 KiB/s"}, {0, "bytes", "0 B"}, {512 << 20, "bytes", "512 MiB"}, {1e300, "bytes", "9.095e+287 TiB"},
		{0.8333, "ratio", "83.3 %"}, {1234.4, "entries", "1234 entries"}, {0.51234, "seconds", "0.512 seconds"},
	} {
		if got := measured(c.value, c.unit); got != c.want {
			t.Errorf("%v %s: %q, not %q", c.value, c.unit, got, c.want)
		}
	}
}
