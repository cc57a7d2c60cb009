package filelog

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	commitSeconds prometheus.Histogram
	commitEvents  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	with := promauto.With(r)
	return &metrics{
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
	}
}
