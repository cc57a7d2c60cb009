package publish_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/problem"
	"downlink/internal/publish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shards = 4

// A memory is the smallest log that keeps an Appender's contract, and can fail.
type memory struct {
	mu      sync.Mutex
	next    uint64
	entries []eventlog.Entry
	calls   int
	once    map[string]eventlog.Result // by shard, scope and key
	print   map[string]string
	fail    map[int]error // by shard
	block   chan struct{} // if set, Append waits for it or for ctx
}

func (l *memory) Append(ctx context.Context, batch []eventlog.Append) []eventlog.Result {
	if l.block != nil {
		select {
		case <-l.block:
		case <-ctx.Done():
			return repeat(eventlog.Result{Err: eventlog.ErrUnavailable}, len(batch))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	results := make([]eventlog.Result, len(batch))
	for i, a := range batch {
		results[i] = l.appendOne(a)
	}
	return results
}

func repeat(r eventlog.Result, n int) []eventlog.Result {
	results := make([]eventlog.Result, n)
	for i := range results {
		results[i] = r
	}
	return results
}

func (l *memory) appendOne(a eventlog.Append) eventlog.Result {
	if err := l.fail[a.Shard]; err != nil {
		return eventlog.Result{IDs: make([]event.ID, len(a.Events)), Err: err}
	}
	key := ""
	if a.Once != nil {
		key = string(rune('0'+a.Shard)) + "/" + a.Once.Scope + "/" + a.Once.Key
		if old, ok := l.once[key]; ok && l.print[key] != a.Once.Fingerprint {
			return eventlog.Result{IDs: make([]event.ID, len(a.Events)), Err: eventlog.ErrConflict}
		} else if ok {
			old.Repeated = true
			return old
		}
	}
	var r eventlog.Result
	for _, e := range a.Events {
		l.next++
		id := event.ID{Ms: 1700000000000, Seq: l.next}
		l.entries = append(l.entries, eventlog.Entry{ID: id, Event: e})
		r.IDs = append(r.IDs, id)
	}
	if key != "" {
		if l.once == nil {
			l.once, l.print = map[string]eventlog.Result{}, map[string]string{}
		}
		l.once[key], l.print[key] = r, a.Once.Fingerprint
	}
	return r
}

func (l *memory) stored() []event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := make([]event.Event, len(l.entries))
	for i, e := range l.entries {
		events[i] = e.Event
	}
	return events
}

// A rig is a handler on a log, without a network.
type rig struct {
	t       *testing.T
	log     *memory
	handler http.Handler
	reg     *prometheus.Registry
}

func newRig(t *testing.T, change ...func(*publish.Options)) *rig {
	t.Helper()
	r := &rig{t: t, log: &memory{}, reg: prometheus.NewRegistry()}
	o := publish.Options{
		Log: r.log, Shards: shards, MaxEventBytes: limits.Always(1000), AppendTimeout: 50 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Metrics: publish.NewMetrics(r.reg),
		Sender: sender,
	}
	for _, c := range change {
		c(&o)
	}
	r.handler = publish.New(o)
	return r
}

// post sends a body; header is a list of names and values.
func (r *rig) post(body string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodPost, publish.Path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	r.handler.ServeHTTP(answer, req)
	return answer
}

func (r *rig) wantCount(result string, n float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "downlink_publish_events_total" && m.GetLabel()[0].GetValue() == result {
				if got := m.GetCounter().GetValue(); got != n {
					r.t.Errorf("events_total{result=%q} is %v, want %v", result, got, n)
				}
				return
			}
		}
	}
	r.t.Errorf("no result %q", result)
}

// A testSender is named by a header, and may send to who isn't named so.
type testSender string

func sender(r *http.Request) (publish.Sender, error) {
	name := r.Header.Get("X-Test-Publisher")
	if name == "unknown" {
		return nil, problem.New(problem.Unauthorized, "unknown")
	}
	return testSender(name), nil
}

func (s testSender) Name() string { return string(s) }

func (s testSender) Permit(target string) error {
	if strings.Contains(target, "forbidden") {
		return problem.New(problem.Forbidden, "not for "+string(s))
	}
	return nil
}
