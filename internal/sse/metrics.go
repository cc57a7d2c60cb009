package sse

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/session"
)

// Metrics of the device endpoint.
type Metrics struct {
	Active      prometheus.Gauge
	Connections prometheus.Counter
	ends        *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		Active: with.NewGauge(prometheus.GaugeOpts{
			Name: "sse_active_connections", Help: "Streams that are open now.",
		}),
		Connections: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_connections_total", Help: "Streams that were opened.",
		}),
		ends: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_session_ends_total", Help: "Streams that ended, by reason.",
		}, []string{"reason"}),
	}
	for _, r := range session.EndReasons() {
		m.ends.WithLabelValues(string(r))
	}
	return m
}

func (m *Metrics) ended(reason session.EndReason) { m.ends.WithLabelValues(string(reason)).Inc() }
