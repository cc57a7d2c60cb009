package dial

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// A State is how a link is.
type State string

// The states. With post a device holds no connection, and is connected as long as
// its last POST went well.
const (
	Connected   State = "connected"
	Dialling    State = "dialling"    // waits for its turn or for an answer, for the first time or after an end
	Unreachable State = "unreachable" // the last attempt failed
)

// States lists every state.
func States() []State { return []State{Connected, Dialling, Unreachable} }

// A Result is what an attempt at a WebSocket came to.
type Result string

// The results.
const (
	Opened       Result = "connected"
	FailedReach  Result = "unreachable"   // no address, no connection, no TLS, or not allowed
	FailedAnswer Result = "refused"       // the device, or what stands before it, answered otherwise
	FailedOlder  Result = "superseded"    // the device knows a newer owner
	FailedHello  Result = "hello"         // no hello, or none that can be read, in time
	FailedLimit  Result = "limit"         // max_connections are open
	FailedOwner  Result = "not_permitted" // the device is revoked
)

// Results lists every result.
func Results() []Result {
	return []Result{Opened, FailedReach, FailedAnswer, FailedOlder, FailedHello, FailedLimit, FailedOwner}
}

// An End is why a WebSocket ended.
type End string

// The ends.
const (
	DeviceGone End = "device_gone"   // the device closed, or vanished
	Stalled    End = "write_timeout" // it took nothing, or sent no pong, for write_timeout
	Superseded End = "superseded"    // it knows a newer owner
	BadMessage End = "bad_message"   // it sent what isn't of the protocol
	Lapsed     End = "lapsed"        // the lease ended in the middle of a write
	Moved      End = "moved"         // the shard belongs to another member now, or this one leaves
	Unlisted   End = "unlisted"      // the inventory knows the device no more, or otherwise
	Ordered    End = "ordered"       // an operator disconnected or revoked the device
)

// Ends lists every end.
func Ends() []End {
	return []End{DeviceGone, Stalled, Superseded, BadMessage, Lapsed, Moved, Unlisted, Ordered}
}

// An outcome is what a POST came to.
type outcome string

const (
	accepted   outcome = "accepted"
	refused    outcome = "refused"    // an answer that isn't 2xx
	superseded outcome = "superseded" // 409: the device knows a newer owner
	failed     outcome = "failed"     // no answer
	expired    outcome = "expired"    // it left the window; the device is told to resync
)

func outcomes() []outcome { return []outcome{accepted, refused, superseded, failed, expired} }

// Metrics of dialled devices.
type Metrics struct {
	Shards  prometheus.Gauge
	Without prometheus.Histogram
	devices *prometheus.GaugeVec
	dials   *prometheus.CounterVec
	ends    *prometheus.CounterVec
	posts   *prometheus.CounterVec
	events  prometheus.Counter
	keeps   *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		Shards: with.NewGauge(prometheus.GaugeOpts{
			Name: "downlink_dial_shards", Help: "Shards whose devices this member dials.",
		}),
		Without: with.NewHistogram(prometheus.HistogramOpts{
			Name: "downlink_dial_seconds_without_connection", Help: "How long a device had been without a WebSocket when it got one, as this member knows: since its last one ended here, or since its shard came here.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 900, 3600},
		}),
		devices: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "downlink_dial_devices", Help: "Devices of this member's shards: connected (with post: the last POST went well, or none was needed yet), dialling (waiting for a turn or an answer), unreachable (the last attempt failed).",
		}, []string{"state"}),
		dials: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_dials_total", Help: "Attempts at a WebSocket by what they came to.",
		}, []string{"result"}),
		ends: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_dial_ends_total", Help: "WebSockets that ended, by reason.",
		}, []string{"reason"}),
		posts: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_dial_posts_total", Help: "POSTs of events from the log, by what they came to: accepted (2xx), refused (another answer), superseded (409: a newer owner), failed (no answer), and events that left the window undelivered (expired).",
		}, []string{"result"}),
		events: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_dial_events_total", Help: "Events and resyncs that were written to WebSockets.",
		}),
		keeps: with.NewCounterVec(prometheus.CounterOpts{
			Name: "downlink_dial_positions_kept_total", Help: "Calls by which the log keeps how far devices have come.",
		}, []string{"result"}),
	}
	for _, s := range States() {
		m.devices.WithLabelValues(string(s))
	}
	for _, r := range Results() {
		m.dials.WithLabelValues(string(r))
	}
	for _, e := range Ends() {
		m.ends.WithLabelValues(string(e))
	}
	for _, o := range outcomes() {
		m.posts.WithLabelValues(string(o))
	}
	for _, r := range []string{"kept", "failed"} {
		m.keeps.WithLabelValues(r)
	}
	return m
}

func (m *Metrics) kept(err error) {
	if err != nil {
		m.keeps.WithLabelValues("failed").Inc()
		return
	}
	m.keeps.WithLabelValues("kept").Inc()
}

func (m *Metrics) dialled(r Result)      { m.dials.WithLabelValues(string(r)).Inc() }
func (m *Metrics) ended(e End)           { m.ends.WithLabelValues(string(e)).Inc() }
func (m *Metrics) posted(o outcome)      { m.posts.WithLabelValues(string(o)).Inc() }
func (m *Metrics) counts(s State, n int) { m.devices.WithLabelValues(string(s)).Add(float64(n)) }
