package load

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"downlink/internal/load/fleet"
	"downlink/internal/load/ledger"
	"downlink/internal/load/results"
	"downlink/internal/load/wire"
)

// A tally counts what happens to the devices. It is the fleet's Observer.
type tally struct {
	opts   *Options
	ledger *ledger.Ledger
	known  []bool        // of requests: the device was connected before
	up     []atomic.Bool // the device is connected
	lanes  []laneTally

	// What was sent before is warm-up; ns since 1970.
	measured atomic.Int64

	mu     sync.Mutex
	errors map[string]int // why connections weren't opened, or ended
	first  error          // the first of those
}

// A laneTally is counted by one goroutine and read by others, so that nobody
// waits. Histograms are read when the fleet is closed or within its Do.
type laneTally struct {
	received   atomic.Uint64 // first receipts of honest devices, warm-up included
	warmup     atomic.Uint64 // of those
	others     atomic.Uint64
	repeated   atomic.Uint64
	disordered atomic.Uint64
	foreign    atomic.Uint64
	resyncs    atomic.Uint64
	unmarked   atomic.Uint64
	last       atomic.Int64 // time of the last counted receipt, ns since 1970
	opened     atomic.Int64
	failed     atomic.Int64
	closed     atomic.Int64
	byServer   atomic.Int64
	stalled    atomic.Int64 // of byServer, of devices that misbehave

	latency   *hdrhistogram.Histogram
	scheduled *hdrhistogram.Histogram
	connects  *hdrhistogram.Histogram

	_ [64]byte // lanes don't share a cache line
}

func newTally(o *Options, lanes int, l *ledger.Ledger, known []bool) *tally {
	t := &tally{opts: o, ledger: l, known: known, up: make([]atomic.Bool, o.Devices), lanes: make([]laneTally, lanes), errors: map[string]int{}}
	for i := range t.lanes {
		t.lanes[i].latency, t.lanes[i].scheduled, t.lanes[i].connects = results.NewHistogram(), results.NewHistogram(), results.NewHistogram()
	}
	return t
}

func (t *tally) lane(device int) *laneTally { return &t.lanes[device%len(t.lanes)] }

// Opened implements fleet.Observer.
func (t *tally) Opened(device int, took time.Duration) {
	lane := t.lane(device)
	t.known[device] = true
	t.up[device].Store(true)
	lane.opened.Add(1)
	if t.opts.honest(device) {
		results.Record(lane.connects, took)
	}
}

// Failed implements fleet.Observer.
func (t *tally) Failed(device int, err error) {
	t.lane(device).failed.Add(1)
	t.count(err)
}

// Closed implements fleet.Observer.
func (t *tally) Closed(device int, err error) {
	lane := t.lane(device)
	t.up[device].Store(false)
	lane.closed.Add(1)
	if err == nil || fleet.ByManner(err) {
		return
	}
	lane.byServer.Add(1)
	if !t.opts.honest(device) {
		lane.stalled.Add(1)
	}
	t.count(err)
}

func (t *tally) count(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
	}
	text := err.Error()
	if _, known := t.errors[text]; known || len(t.errors) < maxErrors {
		t.errors[text]++
	} else {
		t.errors["others"]++
	}
}

// maxErrors is how many kinds of errors the report tells apart.
const maxErrors = 50

// Event implements fleet.Observer.
func (t *tally) Event(device int, e *wire.Event, at int64) {
	lane := t.lane(device)
	if e.Kind == wire.Resync {
		lane.resyncs.Add(1)
		return
	}
	if !e.Mark.Marked {
		lane.unmarked.Add(1)
		return
	}
	if !t.opts.honest(device) {
		lane.others.Add(1)
		return
	}
	switch t.ledger.Receive(device, e.Mark.Lane, e.Mark.Seq) {
	case ledger.Foreign:
		lane.foreign.Add(1)
		return
	case ledger.Repeated:
		lane.repeated.Add(1)
		return
	case ledger.Disordered:
		lane.disordered.Add(1)
	}
	lane.received.Add(1)
	if e.Mark.Sent < t.measured.Load() {
		lane.warmup.Add(1)
		return
	}
	lane.last.Store(at)
	took := time.Duration(at - e.Mark.Sent)
	results.Record(lane.latency, took)
	results.Record(lane.scheduled, took+time.Duration(e.Mark.Late)*time.Microsecond)
}

// sum adds up one counter of all lanes.
func (t *tally) sum(of func(*laneTally) uint64) uint64 {
	var sum uint64
	for i := range t.lanes {
		sum += of(&t.lanes[i])
	}
	return sum
}

func (t *tally) received() uint64 {
	return t.sum(func(l *laneTally) uint64 { return l.received.Load() })
}

func (t *tally) failed() int {
	return int(t.sum(func(l *laneTally) uint64 { return uint64(l.failed.Load()) }))
}

// connected is how many devices are connected now.
func (t *tally) connected() int {
	return int(t.sum(func(l *laneTally) uint64 { return uint64(l.opened.Load() - l.closed.Load()) }))
}

// lastReceipt is the time of the last receipt that was measured, or zero.
func (t *tally) lastReceipt() time.Time {
	var last int64
	for i := range t.lanes {
		last = max(last, t.lanes[i].last.Load())
	}
	if last == 0 {
		return time.Time{}
	}
	return time.Unix(0, last)
}

// merged is one histogram of all lanes; the fleet is closed, or this runs
// within its Do.
func (t *tally) merged(of func(*laneTally) *hdrhistogram.Histogram) *hdrhistogram.Histogram {
	h := results.NewHistogram()
	for i := range t.lanes {
		h.Merge(of(&t.lanes[i]))
	}
	return h
}
