package publish_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/publish"
)

// An instant log stores nothing, so that only the handler is measured.
type instant struct{}

func (instant) Append(_ context.Context, batch []eventlog.Append) []eventlog.Result {
	results := make([]eventlog.Result, len(batch))
	ids := make([]event.ID, len(batch))
	for i := range batch {
		ids[i] = event.ID{Ms: 1700000000000, Seq: uint64(i)}
		results[i].IDs = ids[i : i+1]
	}
	return results
}

// A sink takes an answer and keeps nothing of it.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(b []byte) (int, error) { return len(b), nil }
func (s sink) WriteHeader(int)             {}

const oneLine = `{"device":"A83F21","type":"order.push","payload":{"order":17,"lines":[{"sku":"4006381333931","n":2}]}}` + "\n"

// serveOnce gives a handler the same request again and again.
func serveOnce(body, media string) (serve func()) {
	handler := publish.New(publish.Options{
		Log: instant{}, Shards: 64, MaxEventBytes: limits.Always(1 << 20),
		Logger: slog.New(slog.DiscardHandler), Metrics: publish.NewMetrics(prometheus.NewRegistry()),
	})
	text := strings.NewReader(body)
	req := httptest.NewRequest(http.MethodPost, publish.Path, text)
	req.Header.Set("Content-Type", media)
	header := http.Header{}
	return func() {
		text.Reset(body)
		clear(header)
		handler.ServeHTTP(sink{header}, req)
	}
}

// What the handler allocates for a request, a list of lines, an event in it.
// More is not wrong, but ought to be meant.
func TestAllocations(t *testing.T) {
	for name, c := range map[string]struct {
		body, media string
		most        float64
	}{
		"single":           {oneLine, "application/json", 18},
		"batch of 100":     {strings.Repeat(oneLine, 100), "application/x-ndjson", 250},
		"batch of one":     {oneLine, "application/x-ndjson", 38},
		"refused":          {`{"device":"A83F21"}`, "application/json", 18},
		"broadcast":        {`{"device":"*","type":"t","text":"x"}`, "application/json", 30},
		"list of two":      {`{"devices":["a","b"],"type":"t","text":"x"}`, "application/json", 30},
		"idempotency keys": {`{"device":"a","type":"t","text":"x","idem":"k"}`, "application/json", 30},
	} {
		n := testing.AllocsPerRun(200, serveOnce(c.body, c.media))
		if n > c.most {
			t.Errorf("%s: %v allocations, allowed are %v", name, n, c.most)
		}
		t.Logf("%s: %v", name, n)
	}
}

// BenchmarkHandler is the handler alone: no network, no log.
func BenchmarkHandler(b *testing.B) {
	for name, c := range map[string]struct{ body, media string }{
		"single":    {oneLine, "application/json"},
		"batch=100": {strings.Repeat(oneLine, 100), "application/x-ndjson"},
	} {
		b.Run(name, func(b *testing.B) {
			serve := serveOnce(c.body, c.media)
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			for b.Loop() {
				serve()
			}
		})
	}
}
