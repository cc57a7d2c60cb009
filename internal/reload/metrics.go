package reload

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of reloading.
type Metrics struct {
	loads *prometheus.CounterVec
}

// Results of a load.
const (
	loadDone   = "done"
	loadFailed = "failed"
)

// NewMetrics registers the metrics for sources of the given names; reg may be
// nil.
func NewMetrics(reg prometheus.Registerer, names ...string) *Metrics {
	m := &Metrics{loads: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_file_reloads_total", Help: "Files of settings, keys and certificates that had changed while the gateway ran: taken over (done), or unusable (failed), which leaves the old ones in use.",
	}, []string{"source", "result"})}
	for _, name := range names {
		m.loads.WithLabelValues(name, loadDone)
		m.loads.WithLabelValues(name, loadFailed)
	}
	return m
}
