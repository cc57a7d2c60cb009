package metrics_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/metrics"
)

func TestPageNamesTheBuild(t *testing.T) {
	// Twice in one process: a global registry would refuse the second.
	for _, version := range []string{"1.2.3", ""} {
		b := metrics.ReadBuild(version)
		page := httptest.NewRecorder()
		metrics.Handler(metrics.NewRegistry(b), slog.New(slog.DiscardHandler)).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{`downlink_build_info{go="` + b.Go + `"`, `version="` + b.Version + `"} 1`, "go_goroutines "} {
			if !strings.Contains(page.Body.String(), want) {
				t.Errorf("no %q in the page", want)
			}
		}
		if page.Code != 200 || (version == "" && b.Version != "unknown") {
			t.Errorf("%d, %+v", page.Code, b)
		}
	}
}

// broken is a collector that fails.
type broken struct{ prometheus.Collector }

func (broken) Describe(c chan<- *prometheus.Desc) {
	c <- prometheus.NewDesc("broken", "", nil, nil)
}

func (broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("out of order"))
}

// gone is a scraper that has left.
type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

// TestTroubleWithPages: a collector that fails is told; a scraper that leaves isn't.
func TestTroubleWithPages(t *testing.T) {
	var log strings.Builder
	r := metrics.NewRegistry(metrics.Build{})
	h := metrics.Handler(r, slog.New(slog.NewTextHandler(&log, nil)))
	h.ServeHTTP(gone{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if log.Len() > 0 {
		t.Errorf("for a scraper that left: %s", log.String())
	}
	r.MustRegister(broken{})
	page := httptest.NewRecorder()
	h.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "out of order") || !strings.Contains(page.Body.String(), "go_goroutines") {
		t.Errorf("%s\n%.300s", log.String(), page.Body)
	}
}
