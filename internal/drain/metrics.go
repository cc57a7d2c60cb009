package drain

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of going out of service.
type Metrics struct {
	Told     prometheus.Counter
	Aborted  prometheus.Counter
	Isolated prometheus.Gauge
	Surplus  prometheus.Gauge
	phases   *prometheus.GaugeVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		Told: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_drain_told_total", Help: "Connections that were told, by a drain, when to come back; how many it has closed is downlink_session_ends_total with the reason draining.",
		}),
		Aborted: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_drain_aborted_total", Help: "Drains that were taken back before closing began.",
		}),
		Isolated: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_isolated", Help: "1 while streams are ended slowly because the log has been away for isolation_after.",
		}),
		Surplus: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_shed_surplus_streams", Help: "Streams above what the governor allows with its reserve, while a signal is over its threshold: what this gateway lets go, or would if governor_shed_rate weren't 0; how many it has let go is downlink_session_ends_total with the reason shed.",
		}),
		phases: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_drain_phase", Help: "1 for the phase in which this gateway is on its way out, 0 for the others; serving: there is no drain.",
		}, []string{"phase"}),
	}
	m.enter(Serving)
	return m
}

// enter notes the phase that has begun.
func (m *Metrics) enter(phase Phase) {
	for _, p := range Phases() {
		value := 0.0
		if p == phase {
			value = 1
		}
		m.phases.WithLabelValues(string(p)).Set(value)
	}
}
