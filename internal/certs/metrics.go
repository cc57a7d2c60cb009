package certs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the certificate.
type Metrics struct {
	notAfter prometheus.Gauge
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{notAfter: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "downlink_tls_certificate_expiry_timestamp_seconds", Help: "When the certificate of the devices' port expires, in seconds since 1970; 0 without TLS.",
	})}
}
