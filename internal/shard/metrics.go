package shard

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/event"
)

// Metrics of the shards.
type Metrics struct {
	Laps        prometheus.Counter
	LapPages    prometheus.Counter
	LapFailures prometheus.Counter
	Behind      prometheus.Counter
	Conflated   prometheus.Counter
	resyncs     *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		Laps:        counter("downlink_catchup_laps_total", "Shared readings of the log for sessions that were older than the hot window."),
		LapPages:    counter("downlink_catchup_pages_total", "Pages read from the log by laps."),
		LapFailures: counter("downlink_catchup_failures_total", "Laps that ended because the log could not be read; their sessions wait for the next one."),
		Behind:      counter("downlink_session_behind_total", "Times a session had no room for an event and went on from the log later."),
		Conflated:   counter("downlink_session_conflated_total", "Events that a session which was behind wasn't sent, because a newer one for the same target with the same key makes them needless."),
		resyncs: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_resync_total", Help: "Resync frames by reason.",
		}, []string{"reason"}),
	}
	for _, r := range event.Reasons() {
		m.resyncs.WithLabelValues(string(r))
	}
	return m
}

func (m *Metrics) resync(reason event.Reason) { m.resyncs.WithLabelValues(string(reason)).Inc() }

// Register adds the gauges that are read from the shards when asked for.
func (t *Set) Register(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("downlink_hot_window_bytes", "Memory of the hot window over all shards, in bytes.", func() float64 {
		bytes, _ := t.hot()
		return float64(bytes)
	})
	gauge("downlink_hot_window_entries", "Entries in the hot window over all shards.", func() float64 {
		_, entries := t.hot()
		return float64(entries)
	})
}

func (t *Set) hot() (bytes, entries int) {
	for _, s := range t.shards {
		s.mu.Lock()
		bytes += s.hot.bytes
		entries += len(s.hot.window())
		s.mu.Unlock()
	}
	return bytes, entries
}
