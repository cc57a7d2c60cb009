package auth

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the proof of identity.
type Metrics struct {
	failures *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		failures: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_auth_failures_total", Help: "Requests that were refused for good because they prove no identity, by reason.",
		}, []string{"reason"}),
	}
	for _, f := range Failures() {
		m.failures.WithLabelValues(string(f))
	}
	return m
}

func (m *Metrics) failed(err error) {
	if e, ok := errors.AsType[*Error](err); ok {
		m.failures.WithLabelValues(string(e.Failure)).Inc()
	}
}
