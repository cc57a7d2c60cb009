package tail

import (
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Metrics of the tail.
type Metrics struct {
	Entries      prometheus.Counter
	Glanced      prometheus.Counter
	ReadFailures prometheus.Counter
	Restarts     prometheus.Counter
	Overtaken    prometheus.Counter
	resets       *prometheus.CounterVec
	faults       *prometheus.CounterVec
	available    *prometheus.GaugeVec

	mu     sync.Mutex
	logged map[eventlog.Fault]time.Time // when each kind was logged last
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		Entries:      counter("downlink_tail_entries_total", "Entries read from the log, those for devices elsewhere included."),
		Glanced:      counter("downlink_tail_glanced_entries_total", "Entries among them that came with the round trip of an append of this gateway, ahead of the next read."),
		ReadFailures: counter("downlink_tail_read_failures_total", "Reads of the log that failed."),
		Restarts:     counter("downlink_tail_restarts_total", "Reads begun anew because the log moved and the tail did not."),
		Overtaken:    counter("downlink_tail_overtaken_total", "Times the sweep had removed entries of a shard that this gateway had not read."),
		resets: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_tail_resets_total", Help: "Shards whose sessions were all told to resync, by reason.",
		}, []string{"reason"}),
		faults: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_log_faults_total", Help: "Malformed entries that were passed over, by kind.",
		}, []string{"kind"}),
		available: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_log_available", Help: "1 while the log of this group of shards can be read, else 0.",
		}, []string{"group"}),
		logged: make(map[eventlog.Fault]time.Time),
	}
	for _, r := range []event.Reason{event.LogRewound, event.LogUncertain, event.WindowExpired} {
		m.resets.WithLabelValues(string(r))
	}
	for _, f := range eventlog.Faults() {
		m.faults.WithLabelValues(string(f))
	}
	m.reachable(0, false) // every log has a group 0; more of them appear as they are read
	return m
}

func (m *Metrics) reset(reason event.Reason) { m.resets.WithLabelValues(string(reason)).Inc() }

func (m *Metrics) reachable(group int, yes bool) {
	value := 0.0
	if yes {
		value = 1
	}
	m.available.WithLabelValues(strconv.Itoa(group)).Set(value)
}

// faultEvery is how often a kind of fault is logged: whoever writes rubbish into
// the log writes a lot of it, and who looks for one event finds it at night.
const faultEvery = time.Minute

// dispatched counts entries, and logs faults.
func (m *Metrics) dispatched(b eventlog.Batch, log *slog.Logger) {
	m.Entries.Add(float64(len(b.Entries)))
	for _, e := range b.Entries {
		if e.Fault == "" {
			continue
		}
		m.faults.WithLabelValues(string(e.Fault)).Inc()
		m.mu.Lock()
		now := time.Now()
		due := now.Sub(m.logged[e.Fault]) >= faultEvery
		if due {
			m.logged[e.Fault] = now
		}
		m.mu.Unlock()
		if due {
			log.Warn("a malformed entry was passed over; for a minute, others of this kind are only counted",
				"kind", e.Fault, "shard", b.Shard, "id", e.ID)
		}
	}
}
