package lobby

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the lobbies of all listeners.
type Metrics struct {
	waiting, admitted *prometheus.GaugeVec
	meters            map[string]*Meter
	cut, away, short  *prometheus.CounterVec
}

// A Meter is what one listener's lobby counts with.
type Meter struct {
	waiting, admitted prometheus.Gauge
	cut, away         prometheus.Counter
	// Short counts how often accepting found no descriptor free.
	Short prometheus.Counter
}

// NewMetrics registers the metrics for listeners of the given names; reg may
// be nil.
func NewMetrics(reg prometheus.Registerer, names ...string) *Metrics {
	with := promauto.With(reg)
	labels := []string{"listener"}
	m := &Metrics{
		meters: make(map[string]*Meter),
		waiting: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_listener_waiting", Help: "Connections without a stream: in the handshake, asking for something else, or being refused.",
		}, labels),
		admitted: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_listener_admitted", Help: "Streams and polls that were admitted and have not ended; at the back end, connections of publishers.",
		}, labels),
		cut: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_listener_cut_total", Help: "Connections without a stream that were cut because a newer one needed the room: max_handshakes.",
		}, labels),
		away: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_listener_turned_away_total", Help: "Connections that were closed at once because there was no room even to refuse them.",
		}, labels),
		short: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_listener_descriptor_shortages_total", Help: "How often a connection couldn't be accepted at once because the process had no file descriptor free.",
		}, labels),
	}
	for _, name := range names {
		m.meters[name] = &Meter{
			waiting: m.waiting.WithLabelValues(name), admitted: m.admitted.WithLabelValues(name),
			cut: m.cut.WithLabelValues(name), away: m.away.WithLabelValues(name), Short: m.short.WithLabelValues(name),
		}
	}
	return m
}

// Of is the meter of one of the listeners.
func (m *Metrics) Of(listener string) *Meter { return m.meters[listener] }
