package control

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/eventlog"
)

// A result is what became of an order.
type result string

const (
	done      result = "done"
	unchanged result = "unchanged" // it stood so already
	refused   result = "refused"   // the request was wrong
	failed    result = "failed"    // the log didn't confirm it
)

func results() []result { return []result{done, unchanged, refused, failed} }

// Metrics of orders.
type Metrics struct{ orders *prometheus.CounterVec }

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{orders: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_orders_total", Help: "Orders about devices that this gateway was given, by kind and by what became of them.",
	}, []string{"kind", "result"})}
	for _, k := range eventlog.ControlKinds() {
		for _, r := range results() {
			m.orders.WithLabelValues(string(k), string(r))
		}
	}
	return m
}

func (m *Metrics) count(k eventlog.ControlKind, r result) {
	m.orders.WithLabelValues(string(k), string(r)).Inc()
}
