package push

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/egress"
	"downlink/internal/post"
	"downlink/internal/problem"
)

// What became of an event for a device; label values of
// downlink_push_results_total.
const (
	resultDelivered   = "delivered"
	resultRefused     = "refused"
	resultUnreachable = "unreachable"
	resultNoAnswer    = "no_answer"
	resultBusy        = "busy"
	resultFull        = "full"
	resultUnknown     = "unknown"
	resultAbandoned   = "abandoned"
	resultDenied      = "denied"
	resultUnavailable = "unavailable"
	resultInvalid     = "invalid"
)

// Metrics of pushing. Make one for each registry.
type Metrics struct {
	results  *prometheus.CounterVec
	failures *prometheus.CounterVec
	answered prometheus.Histogram
	inFlight prometheus.Gauge
	waiting  prometheus.Gauge
	doubtful prometheus.Gauge
}

// NewMetrics registers the metrics, each label value at zero; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		results: f.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_push_results_total",
			Help: "Pushes to a device, by what became of them: delivered (it answered 2xx), refused (it answered otherwise), unreachable (nothing was sent), no_answer (it may have had the event), busy (its turn didn't come within push_wait), full (push_in_flight), unknown (it isn't in the inventory), abandoned (the client went), unavailable (the inventory or keys have not been read); and requests or lines that were not tried: denied, invalid.",
		}, []string{"result"}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_push_failures_total",
			Help: "Pushes that got no answer, by the step that failed: policy, credential, resolve, connect, tls (nothing was sent), send, answer (the device may have had the event).",
		}, []string{"stage"}),
		answered: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "downlink_push_answer_seconds",
			Help:    "Time from the beginning of a push, when its turn had come, to the device's answer, in seconds.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_push_in_flight", Help: "Pushes that are under way.",
		}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_push_waiting", Help: "Pushes that wait for their device's turn.",
		}),
		doubtful: f.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_push_doubtful_devices", Help: "Devices whose last push failed or took longer than a second; together they may have half of push_in_flight.",
		}),
	}
	for _, r := range []string{
		resultDelivered, resultRefused, resultUnreachable, resultNoAnswer, resultBusy, resultFull, resultUnknown, resultAbandoned, resultDenied, resultUnavailable, resultInvalid,
	} {
		m.results.WithLabelValues(r)
	}
	for _, s := range []egress.Stage{egress.Policy, egress.Credential, egress.Resolve, egress.Connect, egress.TLS, post.Send, post.Answer} {
		m.failures.WithLabelValues(string(s))
	}
	return m
}

func (m *Metrics) count(result string) { m.results.WithLabelValues(result).Inc() }

func (m *Metrics) stage(s egress.Stage) { m.failures.WithLabelValues(string(s)).Inc() }

// refused counts what wasn't delivered.
func (m *Metrics) refused(d *problem.Document) { m.count(resultOf(d.Code())) }

func resultOf(c problem.Code) string {
	switch c {
	case problem.DeviceRefused:
		return resultRefused
	case problem.DeviceUnreachable:
		return resultUnreachable
	case problem.NoAnswer:
		return resultNoAnswer
	case problem.DeviceBusy:
		return resultBusy
	case problem.PushFull:
		return resultFull
	case problem.DeviceUnknown:
		return resultUnknown
	case problem.PushAbandoned:
		return resultAbandoned
	case problem.Unauthorized, problem.Forbidden:
		return resultDenied
	case problem.InventoryUnavailable, problem.KeysUnavailable:
		return resultUnavailable
	default:
		return resultInvalid
	}
}
