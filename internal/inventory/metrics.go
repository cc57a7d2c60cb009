package inventory

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Results of a reading.
const (
	resultChanged   = "changed"
	resultUnchanged = "unchanged"
	resultFailed    = "failed"
)

// Metrics of the inventory.
type Metrics struct {
	devices prometheus.Gauge
	invalid prometheus.Gauge
	success prometheus.Gauge
	reads   *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		devices: f.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_inventory_devices", Help: "Devices that are in the inventory.",
		}),
		invalid: f.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_inventory_invalid_entries", Help: "Entries of the inventory that were passed over because they can't be used; the log names some of them.",
		}),
		success: f.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_inventory_last_success_timestamp_seconds", Help: "When the inventory was last read without an error, in seconds since 1970; 0: not yet. While it can't be read, the last one counts.",
		}),
		reads: f.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_inventory_reads_total", Help: "Readings of the inventory: changed, unchanged, or failed (which changes nothing).",
		}, []string{"result"}),
	}
	for _, r := range []string{resultChanged, resultUnchanged, resultFailed} {
		m.reads.WithLabelValues(r)
	}
	return m
}

func (m *Metrics) loaded(changed bool, err error) {
	result := resultUnchanged
	switch {
	case err != nil:
		result = resultFailed
	case changed:
		result = resultChanged
	}
	m.reads.WithLabelValues(result).Inc()
	if err == nil {
		m.success.SetToCurrentTime()
	}
}
