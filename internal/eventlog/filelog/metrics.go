package filelog

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of an embedded log.
type Metrics struct {
	commitSeconds prometheus.Histogram
	commitEvents  prometheus.Histogram
	failed        prometheus.Gauge
}

// NewMetrics registers the metrics; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	with := promauto.With(r)
	return &Metrics{
		commitSeconds: with.NewHistogram(prometheus.HistogramOpts{
			Name:    "downlink_filelog_commit_seconds",
			Help:    "Time that the embedded log's disk took to store one group of events for good.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		commitEvents: with.NewHistogram(prometheus.HistogramOpts{
			Name:    "downlink_filelog_commit_events",
			Help:    "Events stored together in one commit of the embedded log.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		failed: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_filelog_failed",
			Help: "1 since the embedded log's disk has failed a write: no more events are taken until the gateway is restarted; else 0.",
		}),
	}
}
