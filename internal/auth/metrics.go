package auth

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the proof of identity.
type Metrics struct {
	failures *prometheus.CounterVec
	fetches  *prometheus.CounterVec
	fetched  *prometheus.GaugeVec
	keys     *prometheus.GaugeVec
}

// setMetrics are those of one key set.
type setMetrics struct {
	done, failed  prometheus.Counter
	fetched, keys prometheus.Gauge
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
			Name: "downlink_jwks_fetches_total", Help: "Fetches of a key set (jwt_jwks_url), by the issuer that it is bound to, and result.",
		}, []string{"issuer", "result"}),
		fetched: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_jwks_fetched_timestamp_seconds", Help: "When a key set was last fetched, in seconds since 1970; 0: never.",
		}, []string{"issuer"}),
		keys: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_jwks_keys", Help: "Usable keys in a key set that was last fetched.",
		}, []string{"issuer"}),
	}
	for _, f := range Failures() {
		m.failures.WithLabelValues(string(f))
	}
	m.set("")
	return m
}

// set is the metrics of the key set of an issuer; empty: of all others.
func (m *Metrics) set(issuer string) setMetrics {
	issuer = strings.ToValidUTF8(issuer, "?") // a label must be
	return setMetrics{
		done:    m.fetches.WithLabelValues(issuer, fetchDone),
		failed:  m.fetches.WithLabelValues(issuer, fetchFailed),
		fetched: m.fetched.WithLabelValues(issuer),
		keys:    m.keys.WithLabelValues(issuer),
	}
}

func (m *Metrics) failed(err error) {
	if e, ok := errors.AsType[*Error](err); ok {
		m.failures.WithLabelValues(string(e.Failure)).Inc()
	}
}
