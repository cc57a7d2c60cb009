package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the listeners.
type Metrics struct {
	limits *prometheus.GaugeVec
	away   *prometheus.CounterVec
}

// NewMetrics registers the metrics for listeners of the given names; reg may
// be nil.
func NewMetrics(reg prometheus.Registerer, names ...string) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		limits: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_listener_connections_limit", Help: "Connections that a listener holds at most: its share of the process's file descriptors (ulimit -n).",
		}, []string{"listener"}),
		away: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_listener_turned_away_total", Help: "Connections that were closed at once because the listener held as many as it may.",
		}, []string{"listener"}),
	}
	for _, name := range names {
		m.limits.WithLabelValues(name)
		m.away.WithLabelValues(name)
	}
	return m
}

func (m *Metrics) limit(listener string, n int) { m.limits.WithLabelValues(listener).Set(float64(n)) }

func (m *Metrics) turnedAway(listener string) { m.away.WithLabelValues(listener).Inc() }
