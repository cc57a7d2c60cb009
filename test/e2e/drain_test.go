package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// A departure is what is seen of one stream's end from outside.
type departure struct {
	told, closed time.Time
	lines        []string // after its beginning
	again        string   // Downlink-Refused of those that come back at once
}

// leave reads a stream to its end; it has begun when here is called. Who doesn't
// heed retry comes back at once.
func leave(t *testing.T, g *testkit.Gateway, device string, heeds bool, here func()) (d departure) {
	s := testkit.Open(t, g.Device+"/events?device="+device, "")
	s.Until("data: ")
	here()
	for {
		line, ok := s.Line()
		if !ok {
			break
		}
		if strings.HasPrefix(line, "retry: ") && d.told.IsZero() {
			d.told = time.Now()
		}
		d.lines = append(d.lines, line)
	}
	d.closed = time.Now()
	if !heeds {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.Device+"/events?device="+device, nil)
		if err != nil {
			t.Error(err)
			return d
		}
		req.Close = true
		if resp, err := http.DefaultClient.Do(req); err == nil {
			d.again = resp.Header.Get("Downlink-Refused")
			resp.Body.Close()
		}
	}
	return d
}

// unready is when /readyz of both ports began to fail.
func unready(t *testing.T, g *testkit.Gateway) time.Time {
	for _, base := range []string{g.Device, g.Backend} {
		testkit.Eventually(t, "it isn't ready any more", func() bool {
			status, _ := testkit.Get(t, base+"/readyz")
			return status == 503
		})
	}
	return time.Now()
}

const whileClosing = "served while it closes"

// TestDrainOrder proves the steps from outside: not ready; then each device is
// told; then they are closed at the rate; and what comes meanwhile gets the right
// answer.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--drain-wait", "8s", "--drain-rate", "5")...)
	const streams = 40
	all := make([]departure, streams)
	var devices sync.WaitGroup
	for i := range all {
		devices.Go(func() { all[i] = leave(t, g, fmt.Sprint("device-", i), i%2 == 0, func() {}) })
	}
	polled := make(chan string, 1)
	go func() {
		_, answer := testkit.Get(t, g.Backend+"/healthz")
		if answer == "ok\n" {
			_, answer = testkit.Get(t, g.Device+"/poll?wait=60&device=poller&from=earliest")
		}
		polled <- answer
	}()
	testkit.Eventually(t, "all are connected", func() bool { return g.Metric(`downlink_listener_admitted{listener="device"}`) == streams+1 })
	began := time.Now()
	g.Signal(syscall.SIGTERM)
	notReady := unready(t, g)
	late := testkit.Open(t, g.Device+"/events?device=late", "") // what stands in front hasn't noticed yet
	late.Until("data: ")
	publish(t, g, "late", "served while it waits")
	late.Until("data: served while it waits")
	if status, body := testkit.Get(t, g.Device+"/healthz"); status != 200 {
		t.Errorf("it lives: %d %s", status, body)
	}
	late.Until("retry: ")
	for i := range streams / 4 { // whose turn it is first is chance
		publish(t, g, fmt.Sprint("device-", i), whileClosing)
	}
	devices.Wait()
	if code := g.AwaitExit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("not ready after %v, gone after %v", notReady.Sub(began), time.Since(began))

	var told, closed []time.Time
	refused, served := 0, 0
	for i, d := range all {
		if slices.Contains(d.lines, "data: "+whileClosing) {
			served++
		}
		told, closed = append(told, d.told), append(closed, d.closed)
		if n := strings.Count(strings.Join(d.lines, "\n"), "retry: "); n != 2 {
			t.Errorf("device %d got %q", i, d.lines)
		}
		if d.again == "draining" {
			refused++
		} else if d.again != "" {
			t.Errorf("device %d was refused as %q", i, d.again)
		}
	}
	slices.SortFunc(told, time.Time.Compare)
	slices.SortFunc(closed, time.Time.Compare)
	if !notReady.Before(told[0]) || told[0].Sub(began) < time.Second {
		t.Errorf("not ready %v after the signal, the first device told after %v", notReady.Sub(began), told[0].Sub(began))
	}
	// Closing takes 8 s. A reader on a machine that is busy may be late by some.
	if late := told[streams-1].Sub(closed[0]); late > 4*time.Second {
		t.Errorf("the last one was told %v after the first was closed", late)
	}
	if took := closed[streams-1].Sub(closed[0]); took < 2*time.Second {
		t.Errorf("%d connections were closed in %v, at 5 a second", streams, took)
	}
	if refused < streams/8 {
		t.Errorf("of %d devices that come back at once only %d were refused", streams/2, refused)
	}
	if served == 0 {
		t.Error("nobody was served while it closed")
	}
	if answer := <-polled; !strings.HasPrefix(answer, `{"events":[],`) || strings.Contains(answer, `"retry_ms":0`) {
		t.Errorf("the poll was answered %s", answer)
	}
}

// TestHaste: a second signal, and Ctrl-C at once, close everything now; each
// device gets a turn to come back.
func TestHaste(t *testing.T) {
	t.Parallel()
	for name, hurry := range map[string]func(t *testing.T, g *testkit.Gateway){
		"a second signal": func(t *testing.T, g *testkit.Gateway) {
			g.Signal(syscall.SIGTERM)
			unready(t, g)
			g.Signal(syscall.SIGTERM)
		},
		"Ctrl-C": func(_ *testing.T, g *testkit.Gateway) { g.Signal(os.Interrupt) },
		"hasten": func(t *testing.T, g *testkit.Gateway) {
			r := program.Run(t, "", "drain", "--hasten", "--backend", g.Backend)
			if r.Code != 0 || !strings.Contains(r.Out, "drained: 0 of") {
				t.Errorf("%+v", r)
			}
			g.Signal(syscall.SIGTERM)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--drain-wait", "2m", "--drain-rate", "1", "--drain-deadline", "5m", "--retry", "100ms", "--keepalive", "1m")...)
			const streams = 20
			all := make([]departure, streams)
			var devices sync.WaitGroup
			var begun atomic.Int32
			for i := range all {
				devices.Go(func() { all[i] = leave(t, g, fmt.Sprint("device-", i), true, func() { begun.Add(1) }) })
			}
			testkit.Eventually(t, "all streams have begun", func() bool { return begun.Load() == streams })
			began := time.Now()
			hurry(t, g)
			devices.Wait()
			if code := g.AwaitExit(); code != 0 || time.Since(began) > time.Minute {
				t.Errorf("exit code %d after %v", code, time.Since(began))
			}
			longest := 0
			for _, d := range all {
				ms := 0
				if _, err := fmt.Sscanf(strings.TrimSpace(strings.Join(d.lines, " ")), "retry: %d", &ms); err != nil {
					t.Errorf("%v: %q", err, d.lines)
				}
				longest = max(longest, ms)
			}
			if longest < 15_000 {
				t.Errorf("%d devices are back in %d ms, at one a second", streams, longest)
			}
		})
	}
}

// TestDrainTakenBack: before connections are closed; never after a signal.
func TestDrainTakenBack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "drain")
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--drain-wait", "40s", "--shutdown-file", file)...)
	s := testkit.Open(t, g.Device+"/events?device=demo", "")
	s.Until("data: ")
	run := func(want int, says string, args ...string) {
		t.Helper()
		r := program.Run(t, "", append([]string{"drain", "--backend", g.Backend}, args...)...)
		if r.Code != want || !strings.Contains(r.Out+r.Err, says) {
			t.Errorf("drain %v: %+v, want %d and %q", args, r, want, says)
		}
	}
	ready := func(want int) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("readyz says %d", want), func() bool {
			status, _ := testkit.Get(t, g.Backend+"/readyz")
			return status == want
		})
	}
	run(0, "serving: 1 connections", "--show")
	run(0, "waiting until", "--no-wait")
	ready(503)
	run(0, "serving: 1 connections", "--abort")
	ready(200)
	watched := make(chan testkit.Result)
	go func() { watched <- program.Run(t, "", "drain", "--backend", g.Backend) }()
	ready(503)
	run(0, "serving", "--abort")
	if r := <-watched; r.Code != 4 || !strings.Contains(r.Err, "aborted") {
		t.Errorf("who waited for it was told %+v", r)
	}
	testkit.Put(t, file, nil)
	ready(503)
	run(0, `"begun_by":"file"`, "--show", "--json")
	run(0, "serving", "--abort")
	publish(t, g, "demo", "as if nothing had been")
	s.Until("data: as if nothing had been")
	g.Signal(syscall.SIGTERM)
	ready(503)
	run(3, "signal", "--abort")
	g.Signal(syscall.SIGTERM)
	if code := g.AwaitExit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	run(1, "can't be reached")
}

// TestEveryTransportEndsInOrder: HTTP/1.1 and HTTP/2, with TLS and without, beside a
// device that takes nothing, and one that waits for a log that doesn't answer.
func TestEveryTransportEndsInOrder(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	certs := t.TempDir()
	testkit.Certificates(t, certs)
	for name, more := range map[string][]string{
		"plain": nil,
		"TLS":   {"--tls-cert-file", filepath.Join(certs, "server.pem"), "--tls-key-file", filepath.Join(certs, "server-key.pem")},
	} {
		g := program.StartGateway(t, args(append(more, "--log", redis.URL(), "--drain-rate", "50", "--write-timeout", "2s")...)...)
		streams := map[string]*testkit.Stream{}
		ways := map[string]*http.Transport{"HTTP/1.1": speaking(false), "HTTP/2": speaking(true)}
		open := func(web *http.Transport, device, cursor, until string) *testkit.Stream {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.Device+"/events?device="+device, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Last-Event-ID", cursor)
			s := testkit.Send(t, web.Clone(), req)
			s.Until(until)
			return s
		}
		for protocol, web := range ways {
			streams[protocol] = open(web, "idle", "", "data: ")
			open(web, "deaf", "", "data: ")
		}
		for range 4 { // more than the kernel takes
			publish(t, g, "deaf", strings.Repeat("x", 1<<20))
		}
		redis.Stop()
		for protocol, web := range ways {
			streams[protocol+", behind"] = open(web, "behind", "1-1", ": downlink") // it must be judged, and can't
		}
		began := time.Now()
		g.Signal(syscall.SIGTERM)
		for protocol, s := range streams {
			if rest := s.Rest(); !strings.HasSuffix(rest, "\n\n") || !strings.Contains(rest, "retry: ") {
				t.Errorf("%s, %s ended with %q", name, protocol, rest)
			}
		}
		if code := g.AwaitExit(); code != 0 || time.Since(began) > 40*time.Second {
			t.Errorf("%s: exit code %d after %v, with a device that takes nothing", name, code, time.Since(began))
		}
		redis.Cont()
	}
}

func speaking(http2 bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // who it is doesn't matter
}

// TestRoll: three gateways behind a balancer are exchanged one after the other,
// each asked in another way. Nobody loses anything, gets it twice, or has to resync.
func TestRoll(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	dir := t.TempDir()
	launch := func(i int) *testkit.Gateway {
		return program.StartGateway(t, args("--log", redis.URL(), "--drain-wait", "500ms", "--drain-rate", "20",
			"--retry", "300ms", "--shutdown-file", filepath.Join(dir, fmt.Sprint(i)))...)
	}
	old := []*testkit.Gateway{launch(0), launch(1), launch(2)}
	balancer := testkit.StartBalancer(t, old...)
	ledger := testkit.NewLedger("roll", 60)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ledger.Connect(ctx, balancer.URL, 0) })
	defer running.Wait()
	defer cancel()
	ledger.AwaitBegun(t)
	publishing, stop := context.WithCancel(ctx)
	running.Go(func() { ledger.Publish(publishing, balancer.Backend, 200) })
	for i, g := range old {
		balancer.Add(launch(3 + i))
		switch i {
		case 0:
			g.Signal(syscall.SIGTERM)
		case 1:
			testkit.Put(t, filepath.Join(dir, "1"), nil)
		case 2:
			r := program.Run(t, "", "drain", "--backend", g.Backend)
			if r.Code != 0 || !strings.Contains(r.Err, "waiting until") || !strings.Contains(r.Out, "drained: 0 of") {
				t.Errorf("downlink drain: %+v", r)
			}
		}
		if code := g.AwaitExit(); code != 0 {
			t.Errorf("gateway %d ended with %d", i, code)
		}
		if log := g.Log(); !strings.Contains(log, "msg=drained") || !strings.Contains(log, "left=0") {
			t.Errorf("gateway %d says:\n%s", i, log)
		}
	}
	stop()
	t.Logf("%d events went through", ledger.Settle(t))
}

// TestIsolated: a gateway that is cut off from Redis ends its streams slowly, and
// they go on at another one.
func TestIsolated(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	way := testkit.StartProxy(t, strings.TrimPrefix(redis.URL(), "redis://"))
	cut := program.StartGateway(t, args("--log", "redis://"+way.Addr(), "--isolation-after", "1s", "--drain-rate", "10", "--retry", "200ms")...)
	other := program.StartGateway(t, args("--log", redis.URL(), "--isolation-after", "1s")...)
	balancer := testkit.StartBalancer(t, cut)
	ledger := testkit.NewLedger("cut", 12)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ledger.Connect(ctx, balancer.URL, 0) })
	defer running.Wait()
	defer cancel()
	ledger.AwaitBegun(t)
	balancer.Add(other)
	publishing, stop := context.WithCancel(ctx)
	running.Go(func() { ledger.Publish(publishing, func() string { return other.Backend }, 100) })
	testkit.Eventually(t, "streams are old enough", func() bool { return ledger.Finished() > 100 })
	way.Retarget("127.0.0.1:1") // where nobody listens
	testkit.Eventually(t, "all are at the other one", func() bool { return other.Metric("sse_active_connections") >= 8 })
	if status, body := testkit.Get(t, cut.Backend+"/readyz"); status != 200 {
		t.Errorf("a gateway that was ready stays ready: %d %s", status, body)
	}
	if n := cut.Metric(`downlink_session_ends_total{reason="isolated"}`); n < 6 {
		t.Errorf("%v streams ended as isolated", n)
	}
	stop()
	t.Logf("%d events went through", ledger.Settle(t))
}

// TestCheckDrain: the arithmetic is shown, and what can't be is refused with it.
func TestCheckDrain(t *testing.T) {
	t.Parallel()
	loopback := []string{"check", "--listen", "127.0.0.1:8080"}
	r := program.Run(t, "", append(loopback, "--drain-rate", "100")...)
	if r.Code != 0 || !strings.Contains(r.Err, "note: a drain takes 1m20s at most") || !strings.Contains(r.Err, "at 100 a second") || !strings.Contains(r.Err, "Give the process 1m25s") {
		t.Errorf("%+v", r)
	}
	r = program.Run(t, "", append(loopback, "--drain-wait", "30s", "--drain-deadline", "40s")...)
	if r.Code != 2 || !strings.Contains(r.Err, "drain_deadline") || !strings.Contains(r.Err, "choose at least 40.5s") {
		t.Errorf("%+v", r)
	}
}
