package rebalance

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of evening out.
type Metrics struct {
	gateways prometheus.Gauge
	mean     prometheus.Gauge
	allowed  prometheus.Gauge
	surplus  prometheus.Gauge
	states   map[State]prometheus.Gauge
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		gateways: gauge("downlink_rebalance_gateways", "Gateways on this log that say how many streams they hold, this one too; 0: nobody knows at the moment."),
		mean:     gauge("downlink_rebalance_mean_streams", "Streams of each of those gateways on the average."),
		allowed:  gauge("downlink_rebalance_allowed_streams", "Streams that this gateway may hold before it has a surplus: the mean and rebalance_threshold, or what chance explains."),
		surplus:  gauge("downlink_rebalance_surplus_streams", "Streams above the mean, once there are more than allowed: what this gateway lets go, or would if rebalance_rate weren't 0; how many it has let go is downlink_session_ends_total with the reason rebalanced."),
		states:   make(map[State]prometheus.Gauge),
	}
	states := with.NewGaugeVec(prometheus.GaugeOpts{
		Name: "downlink_rebalance_state", Help: "1 for what this gateway does about its place among the others, 0 for the rest; docs/operate/rebalance.md explains each.",
	}, []string{"state"})
	for _, s := range States() {
		m.states[s] = states.WithLabelValues(string(s))
	}
	m.show(Status{State: Unknown})
	return m
}

func (m *Metrics) show(s Status) {
	m.gateways.Set(float64(s.Gateways))
	m.mean.Set(s.Mean)
	m.allowed.Set(float64(s.Allowed))
	m.surplus.Set(float64(s.Surplus))
	for state, gauge := range m.states {
		gauge.Set(0)
		if state == s.State {
			gauge.Set(1)
		}
	}
}
