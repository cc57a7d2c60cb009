package lease

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of a member.
type Metrics struct {
	held     prometheus.Gauge
	members  prometheus.Gauge
	taken    prometheus.Counter
	lost     map[Loss]prometheus.Counter
	renewals map[bool]prometheus.Counter // by success
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	lost := with.NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_lease_lost_total", Help: "Leases of shards that ended here, and why: moved, taken and leaving make this gateway let go of the shard; expired stops events until it is renewed; gone was taken again at once.",
	}, []string{"reason"})
	renewals := with.NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_lease_renewals_total", Help: "Calls to Redis that renew the leases of a group of shards, or ask for more.",
	}, []string{"result"})
	m := &Metrics{
		held: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_lease_shards", Help: "Shards whose lease this gateway holds.",
		}),
		members: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_lease_members", Help: "Gateways that are members of the ring, this one included, as last heard.",
		}),
		taken: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_lease_taken_total", Help: "Leases of shards that this gateway has taken.",
		}),
		lost:     make(map[Loss]prometheus.Counter),
		renewals: map[bool]prometheus.Counter{true: renewals.WithLabelValues("done"), false: renewals.WithLabelValues("failed")},
	}
	for _, why := range Losses() {
		m.lost[why] = lost.WithLabelValues(string(why))
	}
	return m
}
