package sweep

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/eventlog"
)

// Metrics of the sweep.
type Metrics struct {
	Removed, Foreign, Pruned, Failures prometheus.Counter
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Metrics{
		Removed:  counter("downlink_sweep_removed_total", "Entries that this gateway removed because they had left the window."),
		Foreign:  counter("downlink_sweep_foreign_removals_total", "Entries that were found to be removed by somebody else."),
		Pruned:   counter("downlink_sweep_notes_pruned_total", "Notes of removed entries that were dropped for their age."),
		Failures: counter("downlink_sweep_failures_total", "Passes that ended with an error."),
	}
}

func (m *Metrics) add(r eventlog.SweepReport) {
	m.Removed.Add(float64(r.Removed))
	m.Foreign.Add(float64(r.Foreign))
	m.Pruned.Add(float64(r.Pruned))
}
