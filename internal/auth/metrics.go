package auth

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the proof of identity.
type Metrics struct {
	failures *prometheus.CounterVec
	fetches  *prometheus.CounterVec
	fetched  prometheus.Gauge
	keys     prometheus.Gauge
}

// Results of a fetch.
const (
	fetchDone   = "done"
	fetchFailed = "failed"
)

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		failures: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_auth_failures_total", Help: "Requests that were refused for good because they prove no identity, by reason.",
		}, []string{"reason"}),
		fetches: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_jwks_fetches_total", Help: "Fetches of the key set (jwt_jwks_url), by result.",
		}, []string{"result"}),
		fetched: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_jwks_fetched_timestamp_seconds", Help: "When the key set was last fetched, in seconds since 1970; 0: never.",
		}),
		keys: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_jwks_keys", Help: "Usable keys in the key set that was last fetched.",
		}),
	}
	for _, f := range Failures() {
		m.failures.WithLabelValues(string(f))
	}
	m.fetches.WithLabelValues(fetchDone)
	m.fetches.WithLabelValues(fetchFailed)
	return m
}

func (m *Metrics) failed(err error) {
	if e, ok := errors.AsType[*Error](err); ok {
		m.failures.WithLabelValues(string(e.Failure)).Inc()
	}
}
