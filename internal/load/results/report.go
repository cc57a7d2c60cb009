// Package results owns what a load run says at its end: the JSON that scripts
// rely on, and the page for people. It measures nothing. Its invariant: the
// names in the JSON are kept, and the page shows no figure that isn't in it.
package results

import (
	"encoding/json"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Report is the outcome of one run.
type Report struct {
	Scenario string             `json:"scenario"`
	Started  time.Time          `json:"started"`
	Args     map[string]any     `json:"args"`
	Connect  Connect            `json:"connect"`
	Publish  Publish            `json:"publish"`
	Receive  Receive            `json:"receive"`
	Storm    *Storm             `json:"storm,omitempty"`
	Cycles   []Cycle            `json:"cycles,omitempty"`
	Closed   Closed             `json:"closed"`
	Watched  map[string]Watched `json:"watched"`
	Kernel   Kernel             `json:"kernel"`
	Self     Self               `json:"self"`
	Series   []Moment           `json:"series,omitempty"`
	Ended    bool               `json:"interrupted"` // by a signal, before its time; such a run is not judged, and not passed
	Passed   bool               `json:"passed"`
	Failures []string           `json:"failures"`
}

// Connect is how opening the connections went, at first and in a storm.
type Connect struct {
	Asked     int     `json:"asked"`
	Connected int     `json:"connected"`
	Failed    int     `json:"failed"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	Latency   Latency `json:"latency_ms"`
}

// Publish is how publishing went, without the warm-up.
type Publish struct {
	Sent      uint64  `json:"sent"`
	Accepted  uint64  `json:"accepted"`
	Unknown   uint64  `json:"unknown"`
	Refused   uint64  `json:"refused"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"` // accepted
	Latency   Latency `json:"latency_ms"` // from the call to its answer
	Error     string  `json:"error,omitempty"`
}

// Receive is how receiving went. Expected, Received, rates and latencies leave
// out the warm-up; Lost, Repeated, Disordered and Foreign don't.
type Receive struct {
	Expected   uint64   `json:"expected"`
	Received   uint64   `json:"received"` // the first receipt of each; with publishes that stayed without an answer it may exceed Expected
	Lost       uint64   `json:"lost"`
	Repeated   uint64   `json:"repeated"`
	Disordered uint64   `json:"disordered"`
	Foreign    uint64   `json:"foreign"`
	Resyncs    uint64   `json:"resyncs"`
	Warmup     uint64   `json:"warmup"`   // receipts that belong to the warm-up
	Others     uint64   `json:"others"`   // receipts of devices that misbehave
	Unmarked   uint64   `json:"unmarked"` // events that hold no marker of ours
	Seconds    float64  `json:"seconds"`
	PerSecond  float64  `json:"per_second"`
	Latency    Latency  `json:"latency_ms"`           // from sending the request to the receipt
	Scheduled  Latency  `json:"scheduled_latency_ms"` // from when the request was due
	Losses     []string `json:"losses,omitempty"`     // the first few
}

// Storm is the return of all devices at once.
type Storm struct {
	Seconds          float64 `json:"seconds"` // from the first connect until everybody has everything
	ConnectedSeconds float64 `json:"connected_seconds"`
	Devices          int     `json:"devices"`
	Missed           int     `json:"missed"`   // events per device
	Expected         uint64  `json:"expected"` // devices times missed, as far as accepted
	Received         uint64  `json:"received"`
	Complete         bool    `json:"complete"`
	Connected        int     `json:"connected"`
	PerSecond        float64 `json:"per_second"`
	Latency          Latency `json:"connect_latency_ms"`
}

// Cycle is one connecting and disconnecting of all devices.
type Cycle struct {
	Connected int     `json:"connected"`
	Failed    int     `json:"failed"`
	Seconds   float64 `json:"seconds"`
}

// Closed is how connections ended.
type Closed struct {
	ByServer int            `json:"by_server"`
	ByUs     int            `json:"by_us"`
	Stalled  int            `json:"stalled_by_server"` // of ByServer: devices that misbehave
	Errors   map[string]int `json:"errors"`
}

// Watched is what a group of processes used.
type Watched struct {
	PIDs []int              `json:"pids"`
	CPU  map[string]float64 `json:"cpu_seconds"` // by phase
	PSS  map[string]int64   `json:"pss_bytes"`   // by moment
	RSS  map[string]int64   `json:"rss_bytes"`
}

// Kernel is memory of this machine that no process is charged for; of both ends
// of each connection, where both are here.
type Kernel struct {
	// TCP is what waits in sockets, Slab all small objects, sockets among them.
	Slab map[string]int64 `json:"slab_bytes"`
	TCP  map[string]int64 `json:"tcp_mem_bytes"`
}

// Self is what the generator used.
type Self struct {
	CPU map[string]float64 `json:"cpu_seconds_by_phase"`
	All float64            `json:"cpu_seconds"`
	PSS int64              `json:"pss_bytes"`
}

// A Moment is one point of the plots.
type Moment struct {
	Second    float64            `json:"second"`
	Connected int64              `json:"connected"`
	Received  float64            `json:"received_per_second"`
	Published float64            `json:"published_per_second"`
	CPU       map[string]float64 `json:"cpu,omitempty"` // processors in use
	PSS       map[string]int64   `json:"pss_bytes,omitempty"`
}

// Latency is percentiles in ms.
type Latency struct {
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
	Count int64   `json:"count"`
	// Curve is latencies at rising percentiles, for the plot.
	Curve []Point `json:"curve,omitempty"`
}

// A Point says that a share of all was at most so fast.
type Point struct {
	Percentile float64 `json:"percentile"`
	MS         float64 `json:"ms"`
}

// NewHistogram records latencies in µs, up to ten minutes, to three digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3)
}

// Record adds a latency; what is out of range counts as the nearest that isn't.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), h.HighestTrackableValue())) // in range now
}

// Summarize takes the percentiles, and with curve the points of a plot.
func Summarize(h *hdrhistogram.Histogram, curve bool) Latency {
	ms := func(v int64) float64 { return float64(v) / 1000 }
	l := Latency{Count: h.TotalCount(), Max: ms(h.Max())}
	if l.Count == 0 {
		return l
	}
	l.P50, l.P90 = ms(h.ValueAtQuantile(50)), ms(h.ValueAtQuantile(90))
	l.P99, l.P999 = ms(h.ValueAtQuantile(99)), ms(h.ValueAtQuantile(99.9))
	if !curve {
		return l
	}
	last := int64(-1)
	for _, b := range h.CumulativeDistribution() {
		if b.ValueAt != last {
			l.Curve = append(l.Curve, Point{b.Quantile, ms(b.ValueAt)})
		}
		last = b.ValueAt
	}
	return l
}

// WriteJSON writes the report as one indented object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
