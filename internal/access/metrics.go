package access

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// A denial is why a call is not let through.
type denial string

const (
	missing         denial = "token_missing"
	unknown         denial = "token_unknown"
	rejected        denial = "token_rejected"
	keysUnavailable denial = "keys_unavailable"
	scopeMissing    denial = "scope_missing"
)

// Metrics of calls that are not let through.
type Metrics struct {
	denials *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{denials: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_backend_denied_total", Help: "Calls of the back end's port, and lines of batches, that were not let through, by reason: token_missing, token_unknown (not in publishers_file), token_rejected (a JWT that isn't accepted), keys_unavailable (it can't be checked now), scope_missing (the token is good, and not for this).",
	}, []string{"reason"})}
	for _, why := range []denial{missing, unknown, rejected, keysUnavailable, scopeMissing} {
		m.denials.WithLabelValues(string(why))
	}
	return m
}

func (m *Metrics) denied(why denial) { m.denials.WithLabelValues(string(why)).Inc() }
