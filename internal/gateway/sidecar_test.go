package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"downlink/internal/config"
	"downlink/internal/governor/rpc"
	"downlink/internal/governor/rpc/governorv1"
	"downlink/internal/governor/usage"
	"downlink/internal/limits"
	"downlink/internal/testkit"
	client "downlink/throttle"
)

// beside runs a governor for other programs. It has an opinion at once, unless it has
// nothing to go by.
func beside(t *testing.T, o Options) (g *Sidecar, url string, stop func()) {
	t.Helper()
	o.Limits = limits.New(config.LimitsOf(config.Governor), limits.Setting{Name: governorMaximum, Value: 1000, Origin: limits.FromDefault})
	g, err := NewSidecar(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	g.opinion.Store(true)
	g.service.Open()
	return g, "http://" + g.Addr().String(), stop
}

func sidecarOptions(t *testing.T, log string) Options {
	o := testOptions(t, log)
	return Options{
		BackendListen: o.BackendListen, ReadHeaderTimeout: o.ReadHeaderTimeout, ShutdownTimeout: o.ShutdownTimeout, WriteTimeout: o.WriteTimeout,
		Log: o.Log, SweepInterval: o.SweepInterval, Version: o.Version, Logger: o.Logger,
	}
}

// Who may ask may not change, and who may do neither hears nothing; health and metrics
// are everybody's. It is the same by JSON and by gRPC.
func TestSidecarKnowsItsCallers(t *testing.T) {
	t.Parallel()
	const asks, sends, changes = "asks-0123456789abcdef0123456789abcdef", "sends-0123456789abcdef0123456789abcde", "changes-0123456789abcdef0123456789abc"
	file := filepath.Join(t.TempDir(), "publishers.yml")
	entry := func(token, scope string) string {
		return fmt.Sprintf("- {name: %.4s, sha256: %x, %s}\n", token, sha256.Sum256([]byte(token)), scope)
	}
	if err := os.WriteFile(file, []byte(entry(asks, "governor: true")+entry(sends, "broadcast: true")+entry(changes, "admin: true")), 0o600); err != nil {
		t.Fatal(err)
	}
	o := sidecarOptions(t, testkit.StartRedis(t).URL())
	o.Backend.PublishersFile = file
	_, url, _ := beside(t, o)
	const settings, report = `{"settings":{"step":0.2}}`, `{"caller":"a","use":1,"for_seconds":30}`
	for _, c := range []struct {
		method, path, body string
		who                string // may
	}{
		{http.MethodGet, "/v1/governor", "", asks + changes},
		{http.MethodPatch, "/v1/governor", `{"step":0.2}`, changes},
		{http.MethodPost, usage.Path, report, asks + changes},
		{http.MethodPost, governorv1.GovernorGetStateProcedure, "{}", asks + changes},
		{http.MethodPost, governorv1.GovernorReportProcedure, report, asks + changes},
		{http.MethodPost, rpc.PatchPath, settings, changes},
		{http.MethodGet, "/v1/limits", "", changes},
		{http.MethodPatch, "/v1/limits", `{"governor_maximum":500}`, changes},
		{http.MethodPost, rpc.HealthPath + "Check", "{}", asks + sends + changes + "nobody"},
		{http.MethodGet, "/metrics", "", asks + sends + changes + "nobody"},
		{http.MethodGet, "/readyz", "", asks + sends + changes + "nobody"},
		{http.MethodGet, rpc.ProtoPath, "", asks + sends + changes + "nobody"},
		{http.MethodGet, "/console", "", asks + sends + changes + "nobody"},
	} {
		for _, token := range []string{asks, sends, changes, "nobody"} {
			status := call(t, c.method, url+c.path, c.body, token)
			want := http.StatusOK
			if !strings.Contains(c.who, token) {
				want = map[bool]int{true: http.StatusUnauthorized, false: http.StatusForbidden}[token == "nobody"]
			}
			if status != want {
				t.Errorf("%s %s by %.6s: %d, want %d", c.method, c.path, token, status, want)
			}
		}
	}
	c := governorv1.NewGovernorClient(http.DefaultClient, url)
	if _, err := c.GetState(t.Context(), &governorv1.GetStateRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("by gRPC: %v", err)
	}
	asking, err := client.New(client.Options{URL: url, Token: asks, Refresh: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer asking.Close()
	if err := asking.Refresh(t.Context()); err != nil || asking.State().Maximum != 500 {
		t.Errorf("%v, %+v", err, asking.State())
	}
	http.DefaultClient.CloseIdleConnections()
}

func call(t *testing.T, method, url, body, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "nobody" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A watch outlives the time that a request's header may take, on both versions of
// HTTP, and ends with the governor, which is not kept waiting by it.
func TestSidecarIsWatched(t *testing.T) {
	t.Parallel()
	o := sidecarOptions(t, testkit.StartRedis(t).URL())
	o.ReadHeaderTimeout, o.ShutdownTimeout = 2*time.Second, hung
	g, url, stop := beside(t, o)
	ended := make(chan string, 2)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	stream, err := governorv1.NewGovernorClient(&http.Client{Transport: transport}, url, connect.WithGRPC()).Watch(t.Context(), &governorv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	go func() {
		for stream.Receive() {
		}
		ended <- stream.Err().Error()
	}()
	// One enveloped message of JSON, as a program without a library would send it.
	resp, err := http.Post(url+governorv1.GovernorWatchProcedure, "application/connect+json", strings.NewReader("\x00\x00\x00\x00\x02{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go func() {
		text, _ := io.ReadAll(resp.Body)
		ended <- string(text)
	}()
	testkit.Eventually(t, "both watch", func() bool { return g.service.Watching() == 2 })
	select {
	case why := <-ended:
		t.Fatalf("it ends by itself: %s", why)
	case <-time.After(o.ReadHeaderTimeout * 3 / 2):
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > hung/2 {
		t.Errorf("the end took %v", took)
	}
	for range 2 {
		if why := <-ended; !strings.Contains(why, "this governor stops") {
			t.Error(why)
		}
	}
}

// With a certificate the same port speaks TLS: gRPC by HTTP/2, and JSON by either.
func TestSidecarSpeaksTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	o := sidecarOptions(t, testkit.StartRedis(t).URL())
	o.Backend.Certificate = CertFiles{Cert: filepath.Join(dir, "server.pem"), Key: filepath.Join(dir, "server-key.pem")}
	g, _, _ := beside(t, o)
	authority, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	secure := &http.Client{Transport: transport}
	url := "https://" + g.Addr().String()
	if _, err := governorv1.NewGovernorClient(secure, url, connect.WithGRPC()).GetState(t.Context(), &governorv1.GetStateRequest{}); err != nil {
		t.Error(err)
	}
	c, err := client.New(client.Options{URL: url, HTTPClient: secure, Refresh: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
}

// Without Redis there is nothing to go by, and who asks is told what is missing; a
// log in a directory isn't watched at all.
func TestSidecarWithoutRedis(t *testing.T) {
	t.Parallel()
	o := sidecarOptions(t, "redis+sentinel://127.0.0.1:1/main/0")
	g, url, _ := beside(t, o)
	g.opinion.Store(false)
	testkit.Eventually(t, "it says what is missing", func() bool {
		status, text := testkit.Get(t, url+"/v1/governor")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "redis_memory isn't known: ") && strings.Contains(text, "no-opinion-yet")
	})
	if ok, why := g.Ready(); ok || !strings.Contains(why, "redis_memory") {
		t.Errorf("%v %s", ok, why)
	}
	o = sidecarOptions(t, "file:"+t.TempDir())
	_, url, _ = beside(t, o)
	if status, text := testkit.Get(t, url+"/v1/governor"); status != http.StatusOK || strings.Contains(text, "redis_memory") || !strings.Contains(text, "kafka_lag") {
		t.Errorf("%d %s", status, text)
	}
	o = sidecarOptions(t, "redis://127.0.0.1:1/0")
	o.Log.TLS.CA = "gone.pem"
	o.Limits = limits.New(config.LimitsOf(config.Governor))
	refused, err := NewSidecar(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := refused.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Redis can't be watched") {
		t.Errorf("it goes on: %v", err)
	}
}

// A program may ask a gateway, too, whose lever for publishers is another.
func TestThrottleAsksAGateway(t *testing.T) {
	t.Parallel()
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	for lever, unit := range map[string]string{"": "connections", "publish": "entries/s"} {
		c, err := client.New(client.Options{URL: g.backend, Lever: lever, Refresh: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Refresh(t.Context()); err != nil || c.Ratio() != 1 || c.State().Unit != unit {
			t.Errorf("%v, %+v", err, c.State())
		}
	}
	c, err := client.New(client.Options{URL: g.backend, Refresh: time.Hour, Use: func() float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("it counts itself: %v", err)
	}
}

// Its settings stand in the file of a gateway's governor, the floor among them, and
// count as soon as they are written.
func TestSidecarReadsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "governor.yml")
	testkit.Put(t, file, []byte("floor: 0.05\nsignals:\n  redis_memory: {threshold: 0.7}\n"))
	o := sidecarOptions(t, testkit.StartRedis(t).URL())
	o.GovernorFile, o.ReloadInterval = file, 10*time.Millisecond
	g, _, _ := beside(t, o)
	if s := g.law.Settings(); s.Floor != 0.05 || s.Signals["redis_memory"].Threshold != 0.7 || s.Signals["redis_memory"].Levers[0] != "admission" {
		t.Errorf("%+v", s)
	}
	testkit.Put(t, file, []byte("floor: 0.06\n"))
	testkit.Eventually(t, "the file is read again", func() bool { return g.law.Settings().Floor == 0.06 })
	testkit.Put(t, file, []byte("signals: {redis_memory: {levers: [publish]}}\n"))
	if _, err := CheckSidecarFiles(o); err == nil || !strings.Contains(err.Error(), "signals.redis_memory.levers") {
		t.Errorf("there is no such lever here: %v", err)
	}
}

// More in use than the maximum fits is said, once, and isn't waited for.
func TestSidecarWhoseMaximumIsWrong(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	g := &Sidecar{base: base{opts: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}}
	if _, known := g.used(1000); known {
		t.Error("nobody has said anything")
	}
	for _, c := range []struct {
		use, full, part float64
		known           bool
	}{{500, 1000, 0.5, true}, {1100, 1000, 1, true}, {3000, 1000, 0, false}, {3001, 1000, 0, false}, {3001, 4002, 0.749875, true}, {5, 0, 0, false}, {3000, 1000, 0, false}} {
		if err := g.use.Say(usage.Word{Caller: "a", Use: c.use, For: time.Minute}); err != nil {
			t.Fatal(err)
		}
		part, known := g.used(c.full)
		if known != c.known || known && math.Abs(part-c.part) > 1e-4 {
			t.Errorf("%v of %v: %v %v", c.use, c.full, part, known)
		}
	}
	if n := strings.Count(log.String(), "use more than governor_maximum"); n != 2 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
}
