package certs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of certificates.
type Metrics struct {
	notAfter prometheus.Gauge
	listDue  prometheus.Gauge
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		notAfter: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "downlink_tls_certificate_expiry_timestamp_seconds", Help: "When the certificate of the devices' port expires, in seconds since 1970; 0 without TLS.",
		}),
		listDue: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "downlink_tls_client_crl_due_timestamp_seconds", Help: "When the first of the revocation lists (tls_client_crl_file) is due to be replaced, in seconds since 1970; 0 without.",
		}),
	}
}

// NewBackendMetrics are those of the back end's port, whose callers show no
// certificates.
func NewBackendMetrics(reg prometheus.Registerer) *Metrics {
	m := NewMetrics(nil)
	m.notAfter = promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "downlink_backend_tls_certificate_expiry_timestamp_seconds", Help: "When the certificate of the back end's port expires, in seconds since 1970; 0 without TLS.",
	})
	return m
}
