package metrics_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

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
