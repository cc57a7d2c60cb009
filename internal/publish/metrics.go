package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/intake"
	"downlink/internal/problem"
)

// What became of a message; label values of downlink_publish_events_total.
const (
	resultStored      = "stored"
	resultReplayed    = "replayed"
	resultInvalid     = "invalid"
	resultTooLarge    = "too_large"
	resultConflict    = "conflict"
	resultDenied      = "denied"
	resultUnavailable = "unavailable"
	resultFailed      = "failed"
	resultLimited     = "limited"
)

// Metrics counts what publishers send. Make one for each registry.
type Metrics struct {
	events   map[string]prometheus.Counter // by result
	entries  prometheus.Counter
	bytes    prometheus.Counter
	duration map[intake.Form]prometheus.Observer
	inFlight prometheus.Gauge
}

// NewMetrics registers the metrics, each label value at zero.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_publish_events_total",
		Help: "Events that publishers sent, by what became of them: stored, replayed (an idempotency key was repeated), invalid, too_large, conflict, denied (a credential is missing, not accepted, or not for this target), unavailable (the log didn't confirm), limited (faster than publish_rate_per_token or publish_rate_per_device allow), failed. A broadcast or a list of devices counts once.",
	}, []string{"result"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "downlink_publish_request_seconds",
		Help:    "Time from the header of a publish request to the end of its answer, in seconds; form is single, batch, or unknown (refused unread).",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"form"})
	m := &Metrics{
		events: make(map[string]prometheus.Counter),
		entries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "downlink_publish_entries_total",
			Help: "Entries that the log confirmed for publishers; a broadcast makes one for each shard.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "downlink_publish_payload_bytes_total",
			Help: "Bytes of payload in those entries.",
		}),
		duration: make(map[intake.Form]prometheus.Observer),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_publish_requests_in_flight",
			Help: "Publish requests that are being answered.",
		}),
	}
	for _, result := range []string{resultStored, resultReplayed, resultInvalid, resultTooLarge, resultConflict, resultDenied, resultUnavailable, resultLimited, resultFailed} {
		m.events[result] = events.WithLabelValues(result)
	}
	for _, f := range []intake.Form{intake.Single, intake.Batch, intake.Unknown} {
		m.duration[f] = duration.WithLabelValues(string(f))
	}
	reg.MustRegister(events, m.entries, m.bytes, duration, m.inFlight)
	return m
}

// count counts a message that was refused or not stored whole.
func (m *Metrics) count(d *problem.Document) {
	m.events[resultOf(d)].Inc()
}

func resultOf(d *problem.Document) string {
	switch d.Code() {
	case problem.EventTooLarge, problem.BodyTooLarge:
		return resultTooLarge
	case problem.Conflict:
		return resultConflict
	case problem.Unauthorized, problem.Forbidden:
		return resultDenied
	case problem.KeysUnavailable, problem.LogUnavailable, problem.NotReplicated, problem.LogFull, problem.LogExhausted, problem.ShuttingDown:
		return resultUnavailable
	case problem.TooManyEvents:
		return resultLimited
	case problem.Internal:
		return resultFailed
	default:
		return resultInvalid
	}
}
