package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/load/producer"
	"downlink/internal/load/results"
	"downlink/internal/testkit"
)

// program is built once for all tests of the package.
var program testkit.Program

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "downlink-load-test-")
	if err == nil {
		program, err = testkit.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
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
