package redislog

import (
	"context"
	"errors"
	"time"

	"downlink/internal/eventlog"

	"github.com/prometheus/client_golang/prometheus"
)

// A callName is the label of a kind of call in the metrics.
type callName string

const (
	callAppend  callName = "append"
	callRead    callName = "read"
	callRange   callName = "range"
	callJudge   callName = "judge"
	callInspect callName = "inspect"
	callSuspect callName = "suspect"
	callSweep   callName = "sweep"
	callCheck   callName = "check"
	callLocate  callName = "locate"  // who serves what
	callLease   callName = "lease"   // who dials which shards
	callControl callName = "control" // orders about devices, the lists of revoked ones, claims
	// positions of devices that don't keep them
	callPositions callName = "positions"
	callBoard     callName = "board" // what gateways say of themselves
)

func callNames() []callName {
	return []callName{callAppend, callRead, callRange, callJudge, callInspect, callSuspect, callSweep, callCheck, callLocate, callControl, callPositions, callBoard, callLease}
}

// Metrics are the package's metrics.
type Metrics struct {
	seconds map[callName]prometheus.Observer // all but callRead
	failed  map[callName]prometheus.Counter
	dials   prometheus.Counter
	moves   prometheus.Counter
	unfit   prometheus.Gauge
}

// NewMetrics registers the package's metrics; every label value starts at zero.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "downlink_redis_call_seconds",
		Help:    "How long calls to Redis took, by kind of call. Read is not counted: it waits on purpose.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	}, []string{"call"})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_redis_call_errors_total",
		Help: "Calls to Redis that failed, by kind of call.",
	}, []string{"call"})
	m := &Metrics{
		seconds: make(map[callName]prometheus.Observer),
		failed:  make(map[callName]prometheus.Counter),
		dials: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "downlink_redis_tail_connections_total",
			Help: "Connections made for the blocking read. One for each group of shards at start; more mean that Redis was away.",
		}),
		moves: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "downlink_redis_moves_total",
			Help: "Times that a group of shards was served by another server than before: after a failover, or because its slot moved.",
		}),
	}
	m.unfit = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "downlink_redis_unfit_servers",
		Help: "Servers of the log with which no gateway would start as they are now: they may evict events, are too old, or no primary. Asked every 30 s.",
	})
	for _, c := range callNames() {
		m.failed[c] = failed.WithLabelValues(string(c))
		if c != callRead {
			m.seconds[c] = seconds.WithLabelValues(string(c))
		}
	}
	reg.MustRegister(seconds, failed, m.dials, m.moves, m.unfit)
	return m
}

// observe counts a call. One that its caller gave up is no failure of Redis.
func (m *Metrics) observe(call callName, took time.Duration, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, eventlog.ErrClosed) {
		return
	}
	if err != nil {
		m.failed[call].Inc()
	}
	if m.seconds[call] != nil {
		m.seconds[call].Observe(took.Seconds())
	}
}
