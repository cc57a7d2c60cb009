package cors

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of pages.
type Metrics struct{ refused prometheus.Counter }

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "downlink_page_origins_refused_total", Help: "Requests of pages whose origin isn't in cors_origins, nor the gateway's own.",
	})}
}
