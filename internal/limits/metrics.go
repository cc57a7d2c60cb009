package limits

import "github.com/prometheus/client_golang/prometheus"

// Register adds the gauges: for each limit its effective and its configured
// value, and its present use where that is known. They are read when they are
// asked for, so that they can't differ from what is enforced.
func (r *Registry) Register(reg prometheus.Registerer) {
	label := []string{"name"}
	reg.MustRegister(collector{
		registry:   r,
		effective:  prometheus.NewDesc("downlink_limit", "What a limit is at the moment, in its own unit; docs/operate/limits.md explains each.", label, nil),
		configured: prometheus.NewDesc("downlink_limit_configured", "What was configured for a limit, which may be more than can count: GET /v1/limits says why.", label, nil),
		used:       prometheus.NewDesc("downlink_limit_used", "Present use of a limit, where it is known.", label, nil),
		fileFailed: prometheus.NewDesc("downlink_config_file_failed", "1 while the configuration file can't be used as it stands, so that what was read before counts; else 0.", nil, nil),
	})
}

type collector struct {
	registry                                *Registry
	effective, configured, used, fileFailed *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.effective, c.configured, c.used, c.fileFailed} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range c.registry.States() {
		gauge(c.effective, float64(s.Effective), s.Name)
		gauge(c.configured, float64(s.Configured), s.Name)
		if s.Used != nil {
			gauge(c.used, *s.Used, s.Name)
		}
	}
	failed := 0.0
	if c.registry.File().Error != "" {
		failed = 1
	}
	gauge(c.fileFailed, failed)
}
