package publish_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/filelog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/limits"
	"downlink/internal/publish"
	"downlink/internal/testkit"
)

const benchEvent = `{"device":"d%d","type":"order.push","payload":{"order":12345,"lines":[{"sku":"4006381333931","n":2}]}}`

// BenchmarkPublish measures the call over HTTP, with 20 publishers at a time
// that each wait for their answer; an op is one event.
func BenchmarkPublish(b *testing.B) {
	logs := map[string]func() (eventlog.Log, error){
		"embedded": func() (eventlog.Log, error) {
			return filelog.Open(filelog.Options{Dir: b.TempDir(), Shards: 64, Window: time.Minute, MaxEventBytes: limits.Always(1 << 20), Logger: slog.New(slog.DiscardHandler)})
		},
		"redis": func() (eventlog.Log, error) {
			return redislog.Open(context.Background(), redislog.Options{
				URL: testkit.StartRedis(b).URL(), Shards: 64, MaxEventBytes: limits.Always(1 << 20),
				Logger: slog.New(slog.DiscardHandler), Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
			})
		},
	}
	for name, open := range logs {
		for _, size := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, size), func(b *testing.B) {
				log, err := open()
				if err != nil {
					b.Fatal(err)
				}
				defer log.Close()
				benchmark(b, log, size)
			})
		}
	}
}

func benchmark(b *testing.B, log eventlog.Log, size int) {
	s := httptest.NewServer(publish.New(publish.Options{
		Log: log, Shards: 64, MaxEventBytes: limits.Always(1 << 20),
		Logger: slog.New(slog.DiscardHandler), Metrics: publish.NewMetrics(prometheus.NewRegistry()),
	}))
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	media := "application/json"
	if size > 1 {
		media = "application/x-ndjson"
	}
	const publishers = 20
	left := atomic.Int64{}
	left.Store(int64(b.N))
	done := make(chan error, publishers)
	b.ResetTimer()
	for p := range publishers {
		go func() {
			for i := p; left.Add(int64(-size)) > int64(-size); i += publishers {
				var body strings.Builder
				for j := range size {
					fmt.Fprintf(&body, benchEvent+"\n", i*size+j)
				}
				resp, err := client.Post(s.URL+publish.Path, media, strings.NewReader(body.String()))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					done <- fmt.Errorf("%v %w", resp, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range publishers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
