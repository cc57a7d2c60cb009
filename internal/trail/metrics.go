package trail

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of what is remembered.
type Metrics struct {
	proven, claimed prometheus.Gauge
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	held := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "downlink_trail_entries", Help: "Entries remembered for downlink explain: of devices that had proven who they are (proven), and of requests that only said so, or named no device (claimed).",
	}, []string{"identity"})
	return &Metrics{proven: held.WithLabelValues("proven"), claimed: held.WithLabelValues("claimed")}
}
