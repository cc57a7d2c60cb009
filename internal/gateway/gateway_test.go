package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/config"
	"downlink/internal/limits"
	"downlink/internal/testkit"
)

func TestMain(m *testing.M) {
	// net/http waits half a second before it closes a connection that it has refused.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const (
	// hung is how long anything may take. It guards against hangs; no speed is judged
	// by it.
	hung = 2 * time.Minute
	// attempts is how often something is tried that a machine may be too slow for.
	attempts = 20
)

func testOptions(t *testing.T, log string) Options {
	return Options{
		Listen: "127.0.0.1:0", BackendListen: "127.0.0.1:0",
		ReadHeaderTimeout: 30 * time.Second, ShutdownTimeout: 10 * time.Second,
		Log: LogOptions{
			URL: log, Prefix: "pos-ev", Shards: 64, Window: 15 * time.Minute,
		},
		PublishTimeout: 30 * time.Second, SweepInterval: 5 * time.Second,
		Keepalive: 20 * time.Second, WriteTimeout: 30 * time.Second, Retry: 100 * time.Millisecond,
		Driver:  os.Getenv("DOWNLINK_DRIVER"), // `make test` runs these tests on both
		Limits:  limits.New(config.Limits()),
		Version: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// running is a gateway in this process.
type running struct {
	*Gateway
	stop    func() error
	device  string
	backend string
}

func run(t *testing.T, o Options) *running {
	t.Helper()
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r := &running{Gateway: g, device: "http://" + g.DeviceAddr().String(), backend: "http://" + g.BackendAddr().String()}
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the gateway is ready", func() bool {
		ok, _ := g.Ready()
		return ok
	})
	return r
}

// TestLedger is the promise under churn: devices reconnect in a loop while
// events are published; nothing is lost, repeated or out of order.
func TestLedger(t *testing.T) {
	t.Parallel()
	seconds := 8 * time.Second
	logs := map[string]func(t *testing.T) []string{
		"embedded": func(t *testing.T) []string { return []string{"file:" + t.TempDir()} },
		"redis": func(t *testing.T) []string {
			url := testkit.StartRedis(t).URL()
			return []string{url, url, url} // three gateways on one log
		},
	}
	for name, urls := range logs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gateways []*running
			for _, url := range urls(t) {
				o := testOptions(t, url)
				o.Limits = limits.New(config.Limits(), limits.Setting{Name: "hot_window_bytes", Value: 2 << 20}) // some resumes must read the log
				gateways = append(gateways, run(t, o))
			}
			pick := func() *running { return gateways[rand.IntN(len(gateways))] }
			ledger := testkit.NewLedger("churn", 200)
			devices, stopDevices := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				ledger.Connect(devices, func() string { return pick().device }, time.Second)
			}()
			defer func() { stopDevices(); <-done }()
			ledger.AwaitBegun(t)
			publishing, stop := context.WithTimeout(t.Context(), seconds)
			defer stop()
			ledger.Publish(publishing, func() string { return pick().backend }, 2000)
			t.Logf("%d events went through", ledger.Settle(t))
		})
	}
}

func TestPublishReachesADeviceOnAnotherGateway(t *testing.T) {
	redis := testkit.StartRedis(t)
	a, b := run(t, testOptions(t, redis.URL())), run(t, testOptions(t, redis.URL()))
	s := testkit.Open(t, b.device+"/events?device=demo&group=north", "")
	s.Until("data: {\"reason\":\"no-cursor\"")
	for _, c := range []struct{ device, want string }{
		{"demo", `{"id":`}, {"*", `{"ids":[`}, {"@north", `{"ids":[`},
	} {
		status, answer := testkit.Post(t, a.backend+"/v1/events", "application/json",
			fmt.Sprintf(`{"device":%q,"type":"t","payload":{"to":%q}}`, c.device, c.device))
		if status != http.StatusOK || !strings.HasPrefix(answer, c.want) {
			t.Fatalf("%s: %d %s", c.device, status, answer)
		}
		s.Until(fmt.Sprintf(`data: {"to":%q}`, c.device))
	}
	redis.Do("XADD", "pos-ev:32", "*", "dev", "demo", "type", "raw", "payload", "by hand")
	s.Until("data: by hand")
	for _, g := range []*running{a, b} {
		if err := g.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestStartsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	redis.Kill9()
	g, err := New(testOptions(t, redis.URL()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	device, backend := "http://"+g.DeviceAddr().String(), "http://"+g.BackendAddr().String()
	if status, body := testkit.Get(t, backend+"/healthz"); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := testkit.Get(t, backend+"/readyz"); status != 503 || !strings.Contains(body, "log") {
		t.Errorf("readiness: %d %s", status, body)
	}
	if status, body := testkit.Get(t, device+"/events?device=a"); status != 200 || !strings.Contains(body, "refused: starting") {
		t.Errorf("stream: %d %s", status, body)
	}
	if status, body := testkit.Post(t, backend+"/v1/events", "application/json", `{"device":"a","type":"t","payload":1}`); status != 503 {
		t.Errorf("publish: %d %s", status, body)
	}
	redis.Start()
	testkit.Eventually(t, "it becomes ready", func() bool { ok, _ := g.Ready(); return ok })
}

func TestSettingsThatTheLogRefuses(t *testing.T) {
	redis := testkit.StartRedis(t)
	run(t, testOptions(t, redis.URL()))
	o := testOptions(t, redis.URL())
	o.Log.Shards = 32
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "64") || !strings.Contains(err.Error(), "32") {
		t.Errorf("got %v", err)
	}
}

func TestTwoGatewaysOnOneDirectory(t *testing.T) {
	o := testOptions(t, "file:"+t.TempDir())
	run(t, o)
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}

func TestUsedPort(t *testing.T) {
	first := run(t, testOptions(t, "file:"+t.TempDir()))
	o := testOptions(t, "file:"+t.TempDir())
	o.BackendListen = first.BackendAddr().String()
	if _, err := New(o); err == nil {
		t.Error("no error")
	}
}

func TestStopEndsStreamsInOrder(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	s := testkit.Open(t, g.device+"/events?device=a", "")
	s.Until(`data: {"reason":"no-cursor"`)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	s.Until("retry: ")
}

// A client of the devices' port that doesn't finish its request costs no
// publisher the answer: its time to stop is its own.
func TestStopAnswersPublishersWhileADeviceHangs(t *testing.T) {
	t.Parallel()
	o := testOptions(t, "file:"+t.TempDir())
	o.ShutdownTimeout = hung
	g := run(t, o)
	begin := func(at net.Addr, request string) net.Conn {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(hung)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		return c
	}
	device := begin(g.DeviceAddr(), "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
	const body = `{"device":"a","type":"t","payload":1}`
	publisher := begin(g.BackendAddr(), fmt.Sprintf(
		"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body)))
	answers := bufio.NewReader(publisher)
	if resp, err := http.ReadResponse(answers, nil); err != nil || resp.StatusCode != http.StatusContinue {
		t.Fatal(resp, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	testkit.Eventually(t, "the back end's port is closed", func() bool {
		c, err := net.Dial("tcp", g.BackendAddr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if _, err := io.WriteString(publisher, body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	select {
	case err := <-stopped:
		t.Errorf("the device doesn't hang, and the test tests nothing (%v)", err)
	default:
		device.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// TestLogMadeAnewWithOtherSettings: a gateway whose log was flushed and made anew
// by one with other settings ends, and says both values; it would be deaf.
func TestLogMadeAnewWithOtherSettings(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	g, err := New(testOptions(t, redis.URL()))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Run(t.Context()) }()
	testkit.Eventually(t, "it is ready", func() bool { ok, _ := g.Ready(); return ok })
	redis.Pipe([]string{"FLUSHALL"}, []string{"HSET", "pos-ev:meta", "version", "1", "shards", "16", "groups", "1"})
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "16") || !strings.Contains(err.Error(), "64") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(hung):
		t.Fatal("it goes on")
	}
}
