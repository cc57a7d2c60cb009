package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"downlink/internal/limits"
	"downlink/internal/testkit"
)

// A limited gateway has a configuration file.
type limited struct {
	*testkit.Gateway
	t    *testing.T
	file string
}

func startLimited(t *testing.T, text string, more ...string) *limited {
	g := &limited{t: t, file: filepath.Join(t.TempDir(), "downlink.yml")}
	g.write(text)
	g.Gateway = program.StartGateway(t, args(append([]string{"--config", g.file, "--log", "file:" + t.TempDir()}, more...)...)...)
	return g
}

// write changes the file as an editor does; SIGHUP is sent apart.
func (g *limited) write(text string) {
	g.t.Helper()
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g *limited) reload(text string) {
	g.t.Helper()
	g.write(text)
	g.Hangup()
}

// counts waits until a limit is what it should be, by its gauge.
func (g *limited) counts(name string, value float64) {
	g.t.Helper()
	testkit.Eventually(g.t, fmt.Sprintf("%s is %v", name, value), func() bool {
		return g.Metric(`downlink_limit{name="`+name+`"}`) == value
	})
}

// run is `downlink limits` for this gateway.
func (g *limited) run(code int, more ...string) string {
	g.t.Helper()
	r := program.Run(g.t, "", append([]string{"limits", "--backend", g.Backend}, more...)...)
	ends(g.t, r, code)
	return r.Out + r.Err
}

// state is what the gateway says of a limit.
func (g *limited) state(name string) (s limits.State, file limits.File) {
	g.t.Helper()
	var list limits.List
	_, text := testkit.Get(g.t, g.Backend+limits.Path)
	if err := json.Unmarshal([]byte(text), &list); err != nil || list.File == nil {
		g.t.Fatalf("%v in %s", err, text)
	}
	for _, s := range list.Limits {
		if s.Name == name {
			return s, *list.File
		}
	}
	g.t.Fatalf("no limit %s in %s", name, text)
	return s, file
}

func (g *limited) open(device string) *testkit.Stream {
	g.t.Helper()
	return testkit.Open(g.t, g.Device+"/events?device="+device, "")
}

func (g *limited) publish(device, text string) (int, string) {
	g.t.Helper()
	return testkit.Post(g.t, g.Backend+"/v1/events", "application/json", fmt.Sprintf(`{"device":%q,"type":"t","text":%q}`, device, text))
}

// TestALowerLimitEndsNoStream: a limit below the present use, by the file or by
// PATCH, refuses what is new; who is there stays, and gets his events.
func TestALowerLimitEndsNoStream(t *testing.T) {
	t.Parallel()
	g := startLimited(t, "streams_per_device: 4\n")
	var streams []*testkit.Stream
	for range 4 {
		s := g.open("a")
		s.Until("data: ")
		streams = append(streams, s)
	}
	refused := func(device, why string) {
		t.Helper()
		s := g.open(device)
		if got := s.Header.Get("Downlink-Refused"); s.Status != 200 || got != why {
			t.Errorf("a new stream gets %d, refused %q, want %q", s.Status, got, why)
		}
		s.Until("retry: ")
	}
	stay := func(text string) {
		t.Helper()
		if status, answer := g.publish("a", text); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		for _, s := range streams {
			s.Until("data: " + text)
		}
		if n := g.Metric("sse_active_connections"); n != 4 {
			t.Errorf("%v streams are left", n)
		}
	}
	refused("a", "streams_per_device")
	g.reload("streams_per_device: 2\n")
	g.counts("streams_per_device", 2)
	refused("a", "streams_per_device")
	stay("after the file")
	g.run(0, "--set", "max_connections=3")
	refused("b", "max_connections")
	stay("after the command")
	if status, _ := testkit.Get(t, g.Device+"/healthz"); status != 200 {
		t.Errorf("health is %d while devices are refused", status)
	}
	if used, most := g.Metric(`downlink_limit_used{name="max_connections"}`), g.Metric(`downlink_limit{name="max_connections"}`); used < 4 || most != 3 {
		t.Errorf("%v of %v connections are shown", used, most)
	}
	g.run(0, "--set", "max_connections=100", "--set", "streams_per_device=5")
	g.open("a").Until("data: ")
	g.open("b").Until("data: ")
}

// TestWhoWinsAmongLimits: the file, the command line and PATCH, and what a
// restart forgets; each answer says which value counts, and why.
func TestWhoWinsAmongLimits(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	g := startLimited(t, "pending_events: 10\nwrite_timeout: 29s\n", "--accept-rate=1000")
	out := g.run(0, "--set", "pending_events=20", "--set", "accept_rate=2000", "--set", "pending_bytes=2MiB")
	for _, want := range []string{"20 events", "2000 connections/s", "2MiB", "the configuration says 10 (" + g.file + ":1)", "the configuration says 1000 (--accept-rate)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// A file that changes elsewhere leaves PATCH's word; one that asks for
	// something new is heard, but not against the command line.
	g.reload("pending_events: 10\nwrite_timeout: 29s\naccept_rate: 3000\nmax_concurrent_streams: 7\n")
	testkit.Eventually(t, "the file is read", func() bool { s, _ := g.state("max_concurrent_streams"); return s.AfterRestart != nil })
	g.counts("pending_events", 20)
	g.counts("accept_rate", 2000)
	if s, _ := g.state("accept_rate"); !strings.Contains(s.Why, "asks for 3000, but --accept-rate wins") {
		t.Errorf("%+v", s)
	}
	g.reload("pending_events: 30\nwrite_timeout: 28s\n")
	g.counts("pending_events", 30)
	if _, file := g.state("pending_events"); len(file.Restart) != 1 || file.Restart[0] != "write_timeout" {
		t.Errorf("%+v", file)
	}
	g.run(0, "--unset", "accept_rate", "--unset", "pending_bytes")
	g.counts("accept_rate", 1000)
	g.counts("pending_bytes", 1<<20)
	if n := strings.Count(g.Log(), "only after a restart"); n != 2 || !strings.Contains(g.Log(), "write_timeout") {
		t.Errorf("the log names %d times what waits for a restart:\n%s", n, g.Log())
	}
}

// TestAWrongFileChangesNothing, and says so until it is right again.
func TestAWrongFileChangesNothing(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	g := startLimited(t, "streams_per_device: 3\n")
	g.reload("streams_per_device: 5\nstreams_per_devise: 6\n")
	testkit.Eventually(t, "it is said", func() bool { return g.Metric("downlink_config_file_failed") == 1 })
	g.counts("streams_per_device", 3)
	for _, want := range []string{"streams_per_devise", "did you mean streams_per_device?", "what was read before counts"} {
		if out := g.run(0); !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(g.Log(), "a changed file can't be used") || g.Metric(`downlink_file_reloads_total{result="failed",source="config"}`) != 1 {
		t.Errorf("the log doesn't say so, or the metric:\n%s", g.Log())
	}
	g.reload("streams_per_device: 5\n")
	g.counts("streams_per_device", 5)
	testkit.Eventually(t, "all is well", func() bool { return g.Metric("downlink_config_file_failed") == 0 })
	// Nor does a wrong command.
	for _, wrong := range [][]string{
		{"--set", "streams_per_device=6", "--set", "pending_events=0"}, {"--set", "listen=1"}, {"--set", "max_header_bytes=8KiB"}, {"--set", "catchup_laps=9"},
	} {
		if out := g.run(3, wrong...); !strings.Contains(out, "A limit can't be changed like this") {
			t.Errorf("%v: %s", wrong, out)
		}
	}
	g.counts("streams_per_device", 5)
	g.run(2, "--set", "streams_per_device")
	g.run(2, "no-such-limit")
}

// TestEventSizeIsChangedWhileItRuns: what was accepted under another limit is
// delivered; what comes now is held to the new one.
func TestEventSizeIsChangedWhileItRuns(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]func() string{
		"embedded": func() string { return "file:" + t.TempDir() },
		"redis":    func() string { return testkit.StartRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startLimited(t, "max_event_bytes: 2KiB\nhot_window_bytes: 1MiB\n", "--log", log())
			first := g.open("a")
			first.Until("data: ")
			large := strings.Repeat("x", 2000)
			if status, answer := g.publish("a", large); status != 200 {
				t.Fatalf("%d %s", status, answer)
			}
			first.Until("data: " + large)
			g.run(0, "--set", "max_event_bytes=1KiB")
			if status, answer := g.publish("a", large); status != 413 || !strings.Contains(answer, "event-too-large") {
				t.Errorf("%d %s", status, answer)
			}
			again := testkit.Open(t, g.Device+"/events?device=a&from=earliest", "")
			if got := again.Until("data: "); !strings.Contains(got, large) {
				t.Errorf("what was accepted isn't delivered:\n%s", got)
			}
			g.run(0, "--set", "max_event_bytes=200KiB")
			larger := strings.Repeat("y", 150_000)
			if status, answer := g.publish("a", larger); status != 200 {
				t.Fatalf("%d %s", status, answer)
			}
			again.Until("data: " + larger)
		})
	}
}

// TestPublishRates: who is too fast is told when to come back, by header and in
// a batch's line, and others go on.
func TestPublishRates(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	g := startLimited(t, "")
	g.run(0, "--set", "publish_rate_per_device=1")
	status, answer := g.publish("a", "1")
	if status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	for range 20 { // a busy machine may need a second for the next one, which is slow enough
		if status, answer = g.publish("a", "2"); status != 200 {
			break
		}
	}
	if status != 429 || !strings.Contains(answer, "publish_rate_per_device is 1 entries/s, and a had more") || !strings.Contains(answer, `"retry_after":1`) {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := g.publish("b", "1"); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
	line := func(device string) string {
		return fmt.Sprintf(`{"device":%q,"type":"t","text":""}`+"\n", device)
	}
	_, answers := testkit.Post(t, g.Backend+"/v1/events", "application/x-ndjson", line("c")+line("c")+line("d"))
	lines := strings.Split(strings.TrimSpace(answers), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"id"`) || !strings.Contains(lines[1], `"error":{`) || !strings.Contains(lines[1], "too-many-events") || !strings.Contains(lines[2], `"id"`) {
		t.Errorf("%s", answers)
	}
	if n := g.Metric(`downlink_publish_events_total{result="limited"}`); n != 2 {
		t.Errorf("%v are counted", n)
	}
	// `downlink publish` waits and repeats.
	ends(t, program.Run(t, "", "publish", "--backend", g.Backend, "--device", "a", "--type", "t", "3"), 0)
	// So it does with a batch, as long as it gets on: without a single retry here.
	g.run(0, "--set", "publish_rate_per_token=4", "--set", "publish_rate_per_device=0")
	r := program.Run(t, strings.Repeat(line("e"), 10), "publish", "--backend", g.Backend, "--ndjson", "--retries=0")
	ends(t, r, 0, "publish_rate_per_token is 4")
	if n := strings.Count(r.Out, `"id"`); n != 10 {
		t.Errorf("%d of 10 lines stand:\n%s", n, r.Out)
	}
	g.run(0, "--unset", "publish_rate_per_device", "--unset", "publish_rate_per_token")
	for range 5 {
		if status, answer := g.publish("a", "4"); status != 200 {
			t.Errorf("%d %s", status, answer)
		}
	}
}

// TestHangupWithoutAFile: SIGHUP ends no gateway that has nothing to read again.
func TestHangupWithoutAFile(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir())...)
	s := testkit.Open(t, g.Device+"/events?device=a", "")
	s.Until("data: ")
	g.Hangup()
	testkit.Eventually(t, "it was asked", func() bool { return strings.Contains(g.Log(), "asked to read the files again") })
	if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"a","type":"t","text":"still here"}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	s.Until("data: still here")
}

// TestFewDescriptors: what the process may hold is looked at first, and what
// follows from it counts, is said, and is the same wherever one asks.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	r := program.Limited(200).Run(t, "", append([]string{"serve"}, args("--listen", "127.0.0.1:0", "--backend-listen", "127.0.0.1:0", "--log", "file:"+t.TempDir())...)...)
	if r.Code == 0 || !strings.Contains(r.Err, "200 file descriptors, at least 256") || !strings.Contains(r.Err, "ulimit -n") {
		t.Errorf("with 200: %d %s", r.Code, r.Err)
	}
	g := &limited{t: t, file: filepath.Join(t.TempDir(), "downlink.yml")}
	g.write("max_connections: 1000\n")
	g.Gateway = program.Limited(300).StartGateway(t, args("--config", g.file, "--log", "file:"+t.TempDir())...)
	s, _ := g.state("max_connections")
	n := s.Effective
	if s.Configured != 1000 || n < 40 || n > 100 || !strings.Contains(s.Why, "descriptors") || !strings.Contains(s.Why, "300") {
		t.Errorf("%+v", s)
	}
	if gauge, configured := g.Metric(`downlink_limit{name="max_connections"}`), g.Metric(`downlink_limit_configured{name="max_connections"}`); gauge != float64(n) || configured != 1000 {
		t.Errorf("the gauges say %v of %v", gauge, configured)
	}
	if text := g.run(0, "--set", "max_connections=500"); !strings.Contains(text, fmt.Sprint(n)) || !strings.Contains(text, "descriptors") {
		t.Errorf("what was applied of 500: %s", text)
	}
	if said := fmt.Sprintf("limit=max_connections configured=1000 effective=%d", n); !strings.Contains(g.Log(), said) {
		t.Errorf("%q isn't said at the start: %s", said, g.Log())
	}
	for i := range n {
		testkit.Open(t, fmt.Sprintf("%s/events?device=d-%d", g.Device, i), "").Until(": downlink")
	}
	if refused := testkit.Open(t, g.Device+"/events?device=one-more", ""); refused.Header.Get("Downlink-Refused") != "max_connections" {
		t.Errorf("one more is answered %d %v", refused.Status, refused.Header)
	}
	for _, port := range []string{g.Device, g.Backend} {
		if status, _ := testkit.Get(t, port+"/readyz"); status != 200 {
			t.Errorf("%s/readyz says %d", port, status)
		}
	}
}
