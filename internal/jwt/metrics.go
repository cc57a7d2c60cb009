package jwt

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of key sets, of all verifiers of a gateway.
type Metrics struct {
	fetches *prometheus.CounterVec
	fetched *prometheus.GaugeVec
	keys    *prometheus.GaugeVec
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
		fetches: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_jwks_fetches_total", Help: "Fetches of a key set, by whose tokens it is for (devices: jwt_jwks_url, publishers: backend_jwt_jwks_url), the issuer that it is bound to, and result.",
		}, []string{"for", "issuer", "result"}),
		fetched: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_jwks_fetched_timestamp_seconds", Help: "When a key set was last fetched, in seconds since 1970; 0: never.",
		}, []string{"for", "issuer"}),
		keys: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_jwks_keys", Help: "Usable keys in a key set that was last fetched.",
		}, []string{"for", "issuer"}),
	}
	m.set(Devices, "")
	m.set(Publishers, "")
	return m
}

// set is the metrics of the key set of an issuer; empty: of all others.
func (m *Metrics) set(of Holders, issuer string) setMetrics {
	issuer = strings.ToValidUTF8(issuer, "?") // a label must be
	return setMetrics{
		done:    m.fetches.WithLabelValues(string(of), issuer, fetchDone),
		failed:  m.fetches.WithLabelValues(string(of), issuer, fetchFailed),
		fetched: m.fetched.WithLabelValues(string(of), issuer),
		keys:    m.keys.WithLabelValues(string(of), issuer),
	}
}
