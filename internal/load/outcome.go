package load

import (
	"fmt"
	"maps"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"downlink/internal/load/results"
)

// report sums up; the fleet is closed.
func (r *run) report(interrupted bool) *results.Report {
	t, p := r.tally, r.press
	out := &results.Report{
		Scenario: r.opts.Scenario,
		Started:  r.begun,
		Args:     r.opts.Args,
		Connect:  r.connect,
		Storm:    r.storm,
		Cycles:   r.cycles,
		Ended:    interrupted,
		Failures: []string{},
		Closed: results.Closed{
			ByServer: int(t.sum(func(l *laneTally) uint64 { return uint64(l.byServer.Load()) })),
			ByUs:     r.byUs,
			Stalled:  int(t.sum(func(l *laneTally) uint64 { return uint64(l.stalled.Load()) })),
			Errors:   maps.Clone(t.errors),
		},
	}
	latency := results.Summarize(t.merged(connects), r.opts.Series)
	if r.storm != nil {
		r.storm.Latency = latency
	} else {
		out.Connect.Latency = latency
	}
	out.Publish = results.Publish{
		Sent: p.sent.Load(), Accepted: p.accepted.Load(), Unknown: p.unknown.Load(), Refused: p.refused.Load(),
		Seconds: r.published.Seconds(),
		Latency: results.Summarize(p.latencies(), r.opts.Series),
	}
	if r.published > 0 {
		out.Publish.PerSecond = float64(out.Publish.Accepted) / r.published.Seconds()
	}
	if err := p.failure(); err != nil {
		out.Publish.Error = err.Error()
	}
	out.Receive = r.receipts()
	r.meter.fill(out)
	if !interrupted { // what has no end can't be judged
		out.Failures = append(out.Failures, r.failures(out)...)
		out.Passed = len(out.Failures) == 0
	}
	return out
}

// receipts sums up what the devices received.
func (r *run) receipts() results.Receive {
	t := r.tally
	of := func(c func(*laneTally) uint64) uint64 { return t.sum(c) }
	in := results.Receive{
		Expected:   r.press.expected.Load(),
		Warmup:     of(func(l *laneTally) uint64 { return l.warmup.Load() }),
		Others:     of(func(l *laneTally) uint64 { return l.others.Load() }),
		Repeated:   of(func(l *laneTally) uint64 { return l.repeated.Load() }),
		Disordered: of(func(l *laneTally) uint64 { return l.disordered.Load() }),
		Foreign:    of(func(l *laneTally) uint64 { return l.foreign.Load() }),
		Resyncs:    of(func(l *laneTally) uint64 { return l.resyncs.Load() }),
		Unmarked:   of(func(l *laneTally) uint64 { return l.unmarked.Load() }),
		Latency:    results.Summarize(t.merged(func(l *laneTally) *hdrhistogram.Histogram { return l.latency }), r.opts.Series),
		Scheduled:  results.Summarize(t.merged(func(l *laneTally) *hdrhistogram.Histogram { return l.scheduled }), r.opts.Series),
	}
	in.Received = t.received() - in.Warmup
	if last := t.lastReceipt(); !last.IsZero() {
		in.Seconds = last.Sub(time.Unix(0, t.measured.Load())).Seconds()
		in.PerSecond = float64(in.Received) / in.Seconds
	}
	lost, first := r.ledger.Lost()
	in.Lost = lost
	for _, loss := range first {
		in.Losses = append(in.Losses, loss.String())
	}
	return in
}

// failures are the sentences for what should not have happened, and for the
// thresholds that were crossed.
func (r *run) failures(out *results.Report) []string {
	var all []string
	fail := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	fail(out.Connect.Failed > 0, "%d of %d connections failed: %v", out.Connect.Failed, out.Connect.Asked, r.tally.first)
	// Only a soak brings back whom the server lets go.
	left := out.Closed.ByServer - out.Closed.Stalled
	fail(left > 0 && r.opts.Scenario != Soak, "the server ended %d of the streams before the measurement was over: it refuses these devices, or limits how long they stay", left)
	fail(r.opts.publishes() && out.Publish.Accepted == 0, "nothing that was published was accepted: %s", out.Publish.Error)
	if limit := r.opts.MaxP99; limit > 0 {
		p99, what := out.Receive.Latency, "receipt"
		if p99.Count == 0 {
			p99, what = out.Connect.Latency, "connect"
		}
		fail(p99.P99 > float64(limit.Microseconds())/1000, "%s p99 is %.3f ms, allowed are %s", what, p99.P99, limit)
	}
	fail(r.opts.MaxLoss >= 0 && out.Receive.Lost > uint64(max(0, r.opts.MaxLoss)), "%d events were lost, allowed are %d", out.Receive.Lost, r.opts.MaxLoss)
	fail(r.opts.MaxRepeats >= 0 && out.Receive.Repeated > uint64(max(0, r.opts.MaxRepeats)), "%d events were repeated, allowed are %d", out.Receive.Repeated, r.opts.MaxRepeats)
	return all
}
