package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/limits"
	"downlink/internal/load/producer"
	"downlink/internal/load/results"
	"downlink/internal/testkit"
)

func TestMain(m *testing.M) {
	// net/http waits half a second before it closes a connection that it has refused.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// startGateway starts a gateway in this process and returns the addresses of
// its two ports.
func startGateway(t *testing.T, log string) (device, backend string) {
	t.Helper()
	g, err := gateway.New(gateway.Options{
		Listen: "127.0.0.1:0", BackendListen: "127.0.0.1:0",
		ReadHeaderTimeout: time.Minute, ShutdownTimeout: 10 * time.Second,
		Log:            gateway.LogOptions{URL: log, Prefix: "pos-ev", Shards: 4, Window: 15 * time.Minute},
		PublishTimeout: time.Minute, SweepInterval: 5 * time.Second,
		Keepalive: 20 * time.Second, WriteTimeout: 30 * time.Second, Retry: 100 * time.Millisecond,
		Limits:  limits.New(config.Limits(), limits.Setting{Name: "streams_per_device", Value: 8}),
		Version: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the gateway is ready", func() bool {
		ready, _ := g.Ready()
		return ready
	})
	return "http://" + g.DeviceAddr().String(), "http://" + g.BackendAddr().String()
}

// options are small ones for a scenario.
func options(scenario, url string) Options {
	return Options{
		Scenario: scenario, URL: url + "/events?device={device}", Prefix: "device-", Devices: 50, Connecting: 20,
		ConnectTimeout: time.Minute, ResumeHeader: "Last-Event-ID: {id}",
		Batch: 1, Rate: 500, Payload: 200, Duration: 300 * time.Millisecond, Grace: 30 * time.Second, Missed: 3,
		MaxLoss: 0, MaxRepeats: 0,
	}
}

// through publishes through a back end.
func through(backend string, batches bool) func() (producer.Sender, error) {
	return func() (producer.Sender, error) { return producer.NewBackend(backend, batches) }
}

func play(t *testing.T, o Options) *results.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// clean fails a test whose run wasn't in order.
func clean(t *testing.T, r *results.Report) {
	t.Helper()
	in := r.Receive
	if !r.Passed || in.Lost+in.Repeated+in.Disordered+in.Foreign > 0 || in.Received != in.Expected || r.Connect.Failed > 0 {
		t.Errorf("%v: %d of %d received, %d lost %v, %d repeated, %d disordered, %d foreign; closed: %+v", r.Failures,
			in.Received, in.Expected, in.Lost, in.Losses, in.Repeated, in.Disordered, in.Foreign, r.Closed)
	}
}

// A fake is a server by hand, in memory, for one broadcast lane: it delivers
// what deliver makes of the n-th payload.
type fake struct {
	deliver func(device string, n int, payload string) []string

	mu      sync.Mutex
	streams map[chan string]string
	n       int
}

// startFake returns the server's address, for devices and for publishing.
func startFake(t *testing.T, deliver func(device string, n int, payload string) []string) string {
	t.Helper()
	f := &fake{deliver: deliver, streams: map[chan string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", f.stream)
	mux.HandleFunc("POST /v1/events", f.publish)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 1000)
	f.mu.Lock()
	f.streams[events] = r.URL.Query().Get("device")
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.streams, events)
		f.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-events:
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fake) publish(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	payload := strings.TrimSpace(string(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	for events, device := range f.streams {
		for _, delivered := range f.deliver(device, f.n, payload) {
			events <- delivered
		}
	}
	f.n++
}

// nobody is an address at which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

func isSetting(err error) bool {
	_, ok := errors.AsType[*SettingError](err)
	return ok
}
