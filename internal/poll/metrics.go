package poll

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/session"
)

// An outcome is what a poll came to: one of these, or the reason why its session
// ended before.
type outcome string

const (
	some  outcome = "events"
	empty outcome = "empty" // nothing came for as long as the client wanted to wait
)

// Metrics of long polls.
type Metrics struct {
	Active   prometheus.Gauge
	outcomes *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		Active: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_polls_active", Help: "Long polls that wait for their answer now.",
		}),
		outcomes: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_polls_total", Help: "Long polls by what they came to: events, nothing (empty), or an end that cut them short.",
		}, []string{"outcome"}),
	}
	for _, o := range outcomes() {
		m.outcomes.WithLabelValues(string(o))
	}
	return m
}

// outcomes lists every outcome.
func outcomes() []outcome {
	list := []outcome{some, empty}
	for _, r := range session.EndReasons() {
		if r != session.Lifetime && r != session.Unexpected { // a poll never gets old, and what follows is the next request
			list = append(list, outcome(r))
		}
	}
	return list
}

func (m *Metrics) answered(o outcome) { m.outcomes.WithLabelValues(string(o)).Inc() }
