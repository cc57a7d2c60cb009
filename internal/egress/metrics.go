package egress

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the way out.
type Metrics struct {
	connections prometheus.Counter
	failures    *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		connections: f.NewCounter(prometheus.CounterOpts{
			Name: "downlink_egress_connections_total", Help: "Connections that were made to devices, with TLS where their URL says so.",
		}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_egress_failures_total", Help: "Devices that were not reached, by the step that failed: policy (dial_schemes, dial_allow or dial_deny forbid it), credential (the inventory names one that isn't in device_credentials_file), resolve, connect, tls.",
		}, []string{"stage"}),
	}
	for _, s := range []Stage{Policy, Credential, Resolve, Connect, TLS} {
		m.failures.WithLabelValues(string(s))
	}
	return m
}

func (m *Metrics) failed(s Stage) { m.failures.WithLabelValues(string(s)).Inc() }
