package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute runs a command line and returns its exit code and what it wrote.
func execute(t *testing.T, in string, environ []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(args, environ, console{in: strings.NewReader(in), out: &o, err: &e})
	return code, o.String(), e.String()
}

func TestExitCodesOfWrongUse(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // in the error
	}{
		{"", "expected one of"},
		{"nonsense", "unexpected argument"},
		{"serve --no-such-flag", "unknown flag"},
		{"serve", "--listen 127.0.0.1:8080"},
		{"check --listen=127.0.0.1:0 --window=soon --shards=0", "window \"soon\" (--window) isn't a duration"},
		{"check --listen=127.0.0.1:0 --window=soon --shards=0", "shards \"0\" (--shards) isn't allowed"},
		{"publish --type t", "--device is missing"},
		{"publish --device d", "--type is missing"},
		{"publish --ndjson --device d", "leave out device"},
		{"publish --device d --type t --backend ftp://x", "--backend isn't an address"},
		{"publish --device d --type t --retries=-1", "--retries must be"},
		{"publish --device d --type t --timeout=3", "isn't a duration"},
		{"listen", "--device"},
		{"check redis://u:hunter2@h", "redis://u:***@h"},
	} {
		code, _, errs := execute(t, "", nil, strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(errs, c.want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%q: %d %s", c.args, code, errs)
		}
		for line := range strings.Lines(errs) {
			if !strings.HasPrefix(line, "downlink: ") {
				t.Errorf("%q: line %q doesn't say who speaks", c.args, line)
			}
		}
	}
}

func TestHelpNeedsNothingElse(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"publish", "--help"}, {"listen", "--help"}} {
		if code, out, errs := execute(t, "", nil, args...); code != exitDone || !strings.Contains(out, "Usage: downlink") || errs != "" {
			t.Errorf("%v: %d %s %s", args, code, out, errs)
		}
	}
}

func TestCheckShowsValuesOriginsAndNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "downlink.yml")
	if err := os.WriteFile(path, []byte("window: 1h\nlog: redis://u:hunter2@h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := execute(t, "", []string{"DOWNLINK_RETRY=7s", "DOWNLINK_TYPO=1"}, "check", "--listen=127.0.0.1:0", "--config", path)
	words := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"window 1h " + path + ":1", "log redis://u:***@h " + path + ":2", "retry 7s DOWNLINK_RETRY", "listen 127.0.0.1:0 --listen", "shards 64 default"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != exitDone || strings.Contains(out+errs, "hunter2") || !strings.Contains(errs, "DOWNLINK_TYPO") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestCheckConnect(t *testing.T) {
	check := func(log string, more ...string) (int, string, string) {
		return execute(t, "", nil, append([]string{"check", "--connect", "--listen=127.0.0.1:0", "--log", log}, more...)...)
	}
	if code, out, _ := check("file:" + t.TempDir()); code != exitDone || !strings.Contains(out, "embedded") {
		t.Errorf("%d %q", code, out)
	}
	server := testkit.StartRedis(t, testkit.RedisConfig("maxmemory-policy allkeys-lru"))
	code, out, errs := check(server.URL())
	if code != exitMissed || !strings.Contains(out, "problem: "+server.Addr()+": eviction: ") || !strings.Contains(errs, "1 of the findings") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1gb", "appendonly", "yes")
	if code, out, _ := check(server.URL(), "--json"); code != exitDone || out != `{"servers":["`+server.Addr()+`"],"findings":[]}`+"\n" {
		t.Errorf("%d %q", code, out)
	}
	server.Kill9()
	if code, _, errs := check(server.URL()); code != exitFailed || !strings.Contains(errs, "start") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestVersion(t *testing.T) {
	if code, out, _ := execute(t, "", nil, "version"); code != exitDone || !strings.HasPrefix(out, "downlink ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %q", code, out)
	}
}

// A backend answers requests with the handlers given, the last one for ever.
func backend(t *testing.T, handlers ...http.HandlerFunc) (url string, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		handlers[min(n, len(handlers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func body(r *http.Request) string {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func one(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, `{"id":"1-1","shard":3}`)
}

func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprint(w, `{"title":"The log can't be reached","status":503,"hint":"Wait."}`)
}

func TestPublishSendsWhatWasGiven(t *testing.T) {
	var got map[string]any
	var key string
	url, _ := backend(t, func(w http.ResponseWriter, r *http.Request) {
		got = nil
		key = r.Header.Get("Idempotency-Key")
		if err := json.Unmarshal([]byte(body(r)), &got); err != nil || r.URL.Path != "/v1/events" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v %v", err, r)
		}
		fmt.Fprintln(w, `{"id":"1-1","shard":3}`)
	})
	for _, c := range []struct {
		in   string
		args []string
		want string
	}{
		{"", []string{"--device", "a,b", "DATA <&>"}, `map[device:a,b text:DATA <&> type:t]`},
		{"", []string{"--device", "a", "--device", "b", "x"}, `map[devices:[a b] text:x type:t]`},
		{"", []string{"--device", "*"}, `map[device:* text: type:t]`},
		{"{\"a\": 1}\r\n", []string{"--device", "a", "--key", "k", "-"}, `map[device:a key:k text:{"a": 1} type:t]`},
		{"two\n\n", []string{"--device", "a", "-"}, "map[device:a text:two\n type:t]"},
	} {
		code, out, errs := execute(t, c.in, []string{}, append([]string{"publish", "--type", "t", "--backend", url}, c.args...)...)
		if code != exitDone || out != `{"id":"1-1","shard":3}`+"\n" || errs != "" || fmt.Sprint(got) != c.want || key == "" {
			t.Errorf("%v: %d %q %q, sent %v", c.args, code, out, errs, got)
		}
	}
	if execute(t, "", nil, "publish", "--type=t", "--device=d", "--idem=mine", "--backend", url); key != "mine" {
		t.Errorf("key %q", key)
	}
}

func TestPublishRepeatsUnderOneKey(t *testing.T) {
	var keys []string
	note := func(r *http.Request) { keys = append(keys, r.Header.Get("Idempotency-Key")) }
	url, requests := backend(t,
		func(w http.ResponseWriter, r *http.Request) { note(r); unavailable(w, r) },
		func(w http.ResponseWriter, r *http.Request) { note(r); one(w, r) })
	code, out, errs := execute(t, "", nil, "publish", "--type=t", "--device=d", "--backend", url)
	if code != exitDone || out == "" || requests.Load() != 2 || keys[0] == "" || keys[0] != keys[1] || !strings.Contains(errs, "trying again") {
		t.Errorf("%d %q %q, keys %q", code, out, errs, keys)
	}
}

func TestPublishFailures(t *testing.T) {
	for _, c := range []struct {
		name     string
		handler  http.HandlerFunc
		code     int
		requests int32
		want     string
	}{
		{"refused", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"title":"T","status":400,"detail":"D","hint":"H"}`)
		}, exitRefused, 1, "downlink: T: D\ndownlink: H\n"},
		{"away", unavailable, exitFailed, 1, "The log can't be reached"},
		{"not a gateway", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, exitRefused, 1, "Is --backend the back-end port"},
	} {
		url, requests := backend(t, c.handler)
		code, out, errs := execute(t, "", nil, "publish", "--type=t", "--device=d", "--retries=0", "--backend", url)
		if code != c.code || out != "" || requests.Load() != c.requests || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %q %q after %d requests", c.name, code, out, errs, requests.Load())
		}
	}
	code, _, errs := execute(t, "", nil, "publish", "--type=t", "--device=d", "--retries=0", "--backend", "http://u:hunter2@127.0.0.1:1")
	if code != exitFailed || strings.Contains(errs, "hunter2") || !strings.Contains(errs, "can't be reached") {
		t.Errorf("nobody there: %d %q", code, errs)
	}
}

// lineServer answers each line by its text: "bad" is refused.
func lineServer(w http.ResponseWriter, r *http.Request) {
	for line := range strings.Lines(body(r)) {
		switch strings.TrimSpace(line) {
		case "":
		case "bad":
			fmt.Fprintln(w, `{"error":{"title":"T","status":400}}`)
		default:
			fmt.Fprintln(w, `{"id":"1-1","shard":0}`)
		}
	}
}

func TestPublishLines(t *testing.T) {
	url, requests := backend(t, lineServer)
	in := strings.Repeat("good\n", 2500) + "\n"
	code, out, errs := execute(t, in, nil, "publish", "--ndjson", "--backend", url)
	if n := strings.Count(out, "\n"); code != exitDone || n != 2500 || errs != "" || requests.Load() < 3 {
		t.Errorf("%d, %d answers in %d requests, %q", code, n, requests.Load(), errs)
	}
	code, out, errs = execute(t, "good\nbad\n\ngood", nil, "publish", "--ndjson", "--backend", url)
	if code != exitRefused || strings.Count(out, "\n") != 3 || !strings.Contains(errs, "1 of 3 lines") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, errs := execute(t, "", nil, "publish", "--ndjson", "--backend", url); code != exitDone || out+errs != "" {
		t.Errorf("no input: %d %q %q", code, out, errs)
	}
}

// A part that the log could not store is sent again whole under its key, and
// printed once.
func TestPublishLinesRepeatsAPart(t *testing.T) {
	var keys []string
	url, _ := backend(t,
		func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			fmt.Fprintln(w, `{"id":"1-1","shard":0}`)
			fmt.Fprintln(w, `{"error":{"title":"The log can't be reached","status":503,"hint":"Wait."}}`)
		},
		func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			lineServer(w, r)
		})
	code, out, errs := execute(t, "one\ntwo\n", nil, "publish", "--ndjson", "--backend", url)
	if code != exitDone || out != strings.Repeat(`{"id":"1-1","shard":0}`+"\n", 2) || !strings.Contains(errs, "trying again") || len(keys) != 2 || keys[0] != keys[1] {
		t.Errorf("%d %q %q %q", code, out, errs, keys)
	}
	short, _ := backend(t, one)
	if code, _, errs := execute(t, "one\ntwo\n", nil, "publish", "--ndjson", "--retries=0", "--backend", short); code != exitFailed || !strings.Contains(errs, "lines 1 to 2: 1 of 2 lines were answered") {
		t.Errorf("a short answer: %d %q", code, errs)
	}
}

func TestListenPrintsCommitsAndEnds(t *testing.T) {
	var cursors []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursors = append(cursors, r.Header.Get("Last-Event-ID"))
		if len(cursors) > 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "retry: 1\n\nid: 5-0\nevent: resync\ndata: {\"reason\":\"no-cursor\",\"after_ms\":0}\n\nid: 5-1\nevent: t\ndata: a\ndata: b\x1b[31m\n\n")
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "cursor")
	code, out, errs := execute(t, "", nil, "listen", "--device", "d", "--url", s.URL, "--cursor-file", file)
	if code != exitRefused || out != "5-0\tresync\tno-cursor\n5-1\tt\ta\\nb\\x1b[31m\n" || !strings.Contains(errs, "connected") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if saved, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(saved), "5-1\n") || len(cursors) != 2 || cursors[1] != "5-1" {
		t.Errorf("saved %q %v, sent %q", saved, err, cursors)
	}
}
