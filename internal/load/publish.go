package load

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"downlink/internal/event"
	"downlink/internal/load/ledger"
	"downlink/internal/load/producer"
	"downlink/internal/load/results"
	"downlink/internal/load/wire"
)

// A press publishes with several publishers, and counts.
type press struct {
	opts       *Options
	ledger     *ledger.Ledger
	measured   *atomic.Int64 // what is sent before is warm-up
	publishers []*publisher
	honest     int // devices of which a receipt is expected

	sent, accepted, unknown, refused atomic.Uint64 // measured
	expected                         atomic.Uint64 // receipts, of what is measured
	expectedAll                      atomic.Uint64 // and of the warm-up
	acceptedAll                      atomic.Uint64

	border sync.RWMutex // held by who sets measured, and by who asks on which side an event falls

	mu  sync.Mutex
	err error // the first
}

// measure begins what is counted.
func (p *press) measure() {
	p.border.Lock()
	defer p.border.Unlock()
	p.measured.Store(time.Now().UnixNano() + 1) // clocks aren't that fine everywhere
}

// stamp is when an event is sent, and whether it is measured. Who receives it and
// compares that time with measured says the same, whenever that is: what is stamped
// before measured is set is older than it, and what comes later isn't.
func (p *press) stamp() (sent time.Time, measured bool) {
	p.border.RLock()
	defer p.border.RUnlock()
	sent = time.Now()
	return sent, sent.UnixNano() >= p.measured.Load()
}

// A publisher is one closed loop over one connection.
type publisher struct {
	press    *press
	number   int
	sender   producer.Sender
	turns    int // devices of this publisher
	turn     int // counts events
	latency  *hdrhistogram.Histogram
	events   []producer.Event
	lanes    []int32
	seqs     []uint32
	outcomes []producer.Outcome
	buffers  [][]byte
}

func newPress(o *Options, l *ledger.Ledger, measured *atomic.Int64) (*press, error) {
	p := &press{opts: o, ledger: l, measured: measured, honest: o.Devices - o.misbehaving()}
	if !o.publishes() {
		return p, nil
	}
	n := o.publishers()
	for number := range n {
		sender, err := o.NewSender()
		if err != nil {
			p.close()
			return nil, err
		}
		p.publishers = append(p.publishers, &publisher{
			press: p, number: number, sender: sender,
			turns:    (o.Devices + n - 1 - number) / n,
			latency:  results.NewHistogram(),
			events:   make([]producer.Event, o.Batch),
			lanes:    make([]int32, o.Batch),
			seqs:     make([]uint32, o.Batch),
			outcomes: make([]producer.Outcome, o.Batch),
			buffers:  make([][]byte, o.Batch),
		})
	}
	return p, nil
}

func (p *press) close() {
	for _, one := range p.publishers {
		one.sender.Close()
	}
}

// run publishes until ctx ends; with perDevice above 0, until each device's
// share is out. It returns when every request has its answer, or none in time.
func (p *press) run(ctx context.Context, perDevice int) {
	var running sync.WaitGroup
	begin := time.Now()
	for _, one := range p.publishers {
		running.Go(func() { one.run(ctx, begin, perDevice) })
	}
	running.Wait()
}

// backOff is how long a publisher rests that isn't answered.
const backOff = 100 * time.Millisecond

func (p *publisher) run(ctx context.Context, begin time.Time, perDevice int) {
	left := -1
	if perDevice > 0 {
		left = perDevice * p.turns
	}
	// The publishers take turns, so that the rate is even.
	var interval, offset time.Duration
	if rate := p.press.opts.Rate; rate > 0 {
		n := len(p.press.publishers)
		interval = time.Duration(float64(p.press.opts.Batch*n) / rate * float64(time.Second))
		offset = interval * time.Duration(p.number) / time.Duration(n)
	}
	for request := 0; left != 0 && ctx.Err() == nil; request++ {
		due := time.Time{}
		if interval > 0 {
			due = begin.Add(offset + interval*time.Duration(request))
			if !sleep(ctx, time.Until(due)) {
				return
			}
		}
		n := p.press.opts.Batch
		if left > 0 {
			n = min(n, left)
			left -= n
		}
		if p.request(ctx, n, due) == 0 {
			sleep(ctx, backOff)
		}
	}
}

// sleep returns false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// request publishes the next n events, which were due at a time (zero: now),
// and returns how many were accepted.
func (p *publisher) request(ctx context.Context, n int, due time.Time) (accepted int) {
	sent, measured := p.press.stamp()
	late := time.Duration(0)
	if !due.IsZero() {
		late = sent.Sub(due)
	}
	for i := range n {
		p.prepare(i, sent, late)
	}
	err := p.sender.Publish(ctx, p.events[:n], p.outcomes[:n])
	took := time.Since(sent)
	if err != nil && ctx.Err() == nil {
		p.press.note(err)
	}
	if measured {
		results.Record(p.latency, took)
	}
	for i := range n {
		if p.settle(i, measured) {
			accepted++
		}
	}
	return accepted
}

// prepare makes event i of the request.
func (p *publisher) prepare(i int, sent time.Time, late time.Duration) {
	lane := wire.Broadcast(p.number)
	p.events[i].Device = event.Broadcast
	if !p.press.opts.toAll() {
		device := p.number + (p.turn%p.turns)*len(p.press.publishers)
		lane = int32(device)
		p.events[i].Device = p.press.opts.deviceName(device)
	}
	p.turn++
	p.lanes[i], p.seqs[i] = lane, p.press.ledger.Publish(lane)
	b := append(p.buffers[i][:0], `{"m":"`...)
	b = wire.Mark{Lane: lane, Seq: p.seqs[i], Sent: sent.UnixNano(), Late: int32(min(late.Microseconds(), 1<<31-1))}.Append(b)
	if pad := p.press.opts.Payload - len(b) - len(`"}`); pad > 0 {
		b = append(b, bytes.Repeat([]byte("x"), pad)...)
	}
	p.buffers[i] = append(b, `"}`...)
	p.events[i].Payload = p.buffers[i]
}

// settle counts what became of event i.
func (p *publisher) settle(i int, measured bool) (accepted bool) {
	counter := &p.press.accepted
	switch p.outcomes[i] {
	case producer.Unknown:
		counter = &p.press.unknown
	case producer.Refused:
		counter = &p.press.refused
	}
	if measured {
		p.press.sent.Add(1)
		counter.Add(1)
	}
	if p.outcomes[i] != producer.Accepted {
		p.press.ledger.Excuse(p.lanes[i], p.seqs[i])
		return false
	}
	receipts := 0
	switch {
	case p.lanes[i] < 0:
		receipts = p.press.honest
	case p.press.opts.honest(int(p.lanes[i])):
		receipts = 1
	}
	p.press.acceptedAll.Add(1)
	p.press.expectedAll.Add(uint64(receipts))
	if measured {
		p.press.expected.Add(uint64(receipts))
	}
	return true
}

func (p *press) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// failure is the first error of publishing, or nil.
func (p *press) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("first trouble with publishing: %w", p.err)
}

// latencies is one histogram of all publishers; none of them runs.
func (p *press) latencies() *hdrhistogram.Histogram {
	h := results.NewHistogram()
	for _, one := range p.publishers {
		h.Merge(one.latency)
	}
	return h
}
