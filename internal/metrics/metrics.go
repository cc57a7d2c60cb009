// Package metrics owns the registry: the collectors of runtime, process and
// build, and the /metrics page. It owns no metric of the product; each package
// keeps its own beside its code. Its invariant: nothing is registered in a
// global registry, so that two gateways can live in one process.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build names the running program.
type Build struct {
	Version  string // set by the build, "unknown" otherwise
	Revision string // commit, with "-dirty" if files were changed
	Go       string // compiler
}

// ReadBuild is what the binary says of itself; version comes from the linker.
func ReadBuild(version string) Build {
	b := Build{Version: version, Revision: "unknown", Go: runtime.Version()}
	if b.Version == "" {
		b.Version = "unknown"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if b.Revision != "unknown" {
		b.Revision += dirty
	}
	return b
}

// NewRegistry is a registry that holds the collectors of the Go runtime, of
// the process, and downlink_build_info.
func NewRegistry(b Build) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "downlink_build_info",
		Help:        "Always 1; the labels name the running program.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go": b.Go},
	})
	info.Set(1)
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return r
}

// Handler serves a registry's metrics. A collector that fails costs its own
// metrics and a log line, not the page.
func Handler(r *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// scrapeLog takes what goes wrong while a page of metrics is made and written.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger. A scraper that leaves before it has read
// the page is none of the operator's troubles.
func (l scrapeLog) Println(v ...any) {
	level := slog.LevelWarn
	for _, one := range v {
		err, _ := one.(error)
		if _, ok := errors.AsType[*net.OpError](err); ok {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, "a page of metrics isn't whole", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}
