package revoked

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the lists.
type Metrics struct {
	devices  prometheus.Gauge
	failures prometheus.Counter
	again    prometheus.Counter
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	return &Metrics{
		devices: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_revoked_devices", Help: "Devices on the lists of revoked ones, as this gateway knows them.",
		}),
		failures: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_revoked_read_failures_total", Help: "Reads of the lists of revoked devices that failed; what is known of them counts meanwhile.",
		}),
		again: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_revoked_given_again_total", Help: "Revocations that the log had lost and this gateway gave again.",
		}),
	}
}
