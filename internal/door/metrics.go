package door

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of who isn't served.
type Metrics struct {
	Rejected prometheus.Counter
	Revoked  prometheus.Counter
	refusals *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		Rejected: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_requests_rejected_total", Help: "Requests of devices that can't be served: method, Accept header, device, body, or a token that is missing or not accepted.",
		}),
		Revoked: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_requests_revoked_total", Help: "Requests of revoked devices, which are answered 204.",
		}),
		refusals: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_refused_total", Help: "Requests of devices that were refused with a time to come back, by reason.",
		}, []string{"reason"}),
	}
	for _, r := range Refusals() {
		m.refusals.WithLabelValues(string(r))
	}
	return m
}

func (m *Metrics) refused(why Refusal) { m.refusals.WithLabelValues(string(why)).Inc() }
