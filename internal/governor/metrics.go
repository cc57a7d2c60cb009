package governor

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics show a governor.
type Metrics struct {
	on                 *prometheus.GaugeVec // without labels: absent until there is a governor
	ratio, maximum     *prometheus.GaugeVec
	floor              *prometheus.GaugeVec
	limiting           *prometheus.GaugeVec
	moves              *prometheus.CounterVec
	value, threshold   *prometheus.GaugeVec
	age, known, over   *prometheus.GaugeVec
	failures, refusals *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		on:        gauge("downlink_governor_on", "1 while the governor moves levers; 0 while it is switched off: its signals are read, and nothing is held back."),
		ratio:     gauge("downlink_throttle_ratio", "Part of what is configured that the governor lets through, by lever: 1 holds nobody back.", "lever"),
		maximum:   gauge("downlink_governor_maximum", "What a lever allows at the moment, in its own unit (connections, entries/s); 0: it isn't limited.", "lever"),
		floor:     gauge("downlink_governor_floor", "Ratio below which a lever doesn't fall.", "lever"),
		limiting:  gauge("downlink_governor_limiting", "1 for the signal by which a lever is below 1, else 0.", "lever", "signal"),
		value:     gauge("downlink_governor_signal", "What a signal was when it was read last, in its own unit; NaN: never, or there is nothing to judge by.", "signal"),
		threshold: gauge("downlink_governor_threshold", "From which value of a signal on the levers that it moves fall; 0: it moves none.", "signal"),
		age:       gauge("downlink_governor_signal_age_seconds", "How old that is; +Inf: it was never read.", "signal"),
		known:     gauge("downlink_governor_signal_known", "1 while what was read of a signal counts; 0 while no lever that it moves rises, because it can't be read.", "signal"),
		over:      gauge("downlink_governor_signal_over", "1 while a signal makes its levers fall, else 0.", "signal"),
		moves: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_governor_changes_total", Help: "Changes of a lever: fall, fast-fall (at the wall), rise, opened (the governor was switched off), adjusted (a floor was raised).",
		}, []string{"lever", "kind"}),
		refusals: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_governor_refused_total", Help: "Streams and events that were refused while a lever was below 1, by the signal that has brought it there; they are counted in downlink_refused_total and downlink_publish_events_total too.",
		}, []string{"lever", "signal"}),
		failures: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_governor_signal_failures_total", Help: "Readings of a signal that failed, were too late, or can't be true.",
		}, []string{"signal"}),
	}
	return m
}

// prepare sets each label value at its beginning.
func (m *Metrics) prepare(levers, signals []string) {
	for _, l := range levers {
		m.ratio.WithLabelValues(l).Set(1)
		m.maximum.WithLabelValues(l)
		m.floor.WithLabelValues(l)
		for _, k := range Kinds() {
			m.moves.WithLabelValues(l, string(k))
		}
		for _, s := range signals {
			m.limiting.WithLabelValues(l, s)
			m.refusals.WithLabelValues(l, s)
		}
	}
	for _, s := range signals {
		m.value.WithLabelValues(s).Set(math.NaN())
		m.threshold.WithLabelValues(s)
		m.age.WithLabelValues(s).Set(math.Inf(1))
		m.known.WithLabelValues(s)
		m.over.WithLabelValues(s)
		m.failures.WithLabelValues(s)
	}
}

// Refused counts what was refused because a lever is below 1, by the signal.
func (m *Metrics) Refused(lever, signal string) { m.refusals.WithLabelValues(lever, signal).Inc() }

func (m *Metrics) moved(c Change) { m.moves.WithLabelValues(c.Lever, string(c.Kind)).Inc() }

// show brings the gauges up to date. With the lock.
func (g *Governor) show() {
	m, now := g.opts.Metrics, time.Since(g.began)
	m.on.WithLabelValues().Set(yes(g.law.settings.On))
	for _, v := range g.law.levers {
		m.ratio.WithLabelValues(v.Name).Set(v.ratio)
		m.floor.WithLabelValues(v.Name).Set(g.law.floor(v))
		most := 0.0
		if v := v.maximum(); v != nil {
			most = *v
		}
		m.maximum.WithLabelValues(v.Name).Set(most)
		for _, s := range g.law.signals {
			m.limiting.WithLabelValues(v.Name, s.name).Set(yes(v.ratio < 1 && v.by == s.name))
		}
	}
	for _, s := range g.law.signals {
		value, age := math.NaN(), math.Inf(1)
		if s.read {
			age = (now - s.at).Seconds()
			if s.last.None == "" {
				value = s.last.Value
			}
		}
		m.value.WithLabelValues(s.name).Set(value)
		m.age.WithLabelValues(s.name).Set(age)
		m.threshold.WithLabelValues(s.name).Set(g.law.settings.Signals[s.name].Threshold)
		m.known.WithLabelValues(s.name).Set(yes(s.fresh(now) && s.verdict != Unknown)) // what not all have answered may be fresh
		m.over.WithLabelValues(s.name).Set(yes(s.verdict == Over || s.verdict == AtWall))
	}
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
