package gateway

import (
	"time"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/governor"
	"downlink/internal/governor/probes"
)

// govern makes a flow's governor, for a gateway and for a dialler.
func (g *base) govern(f *flow, signals []governor.Signal, levers []governor.Lever) (*governor.Governor, error) {
	settings := governor.Defaults(signals)
	settings.On = !g.opts.Ungoverned
	return governor.New(governor.Options{
		Signals: signals, Settings: settings, Levers: levers,
		Metrics: g.metrics.governor, Logger: g.opts.Logger.With("part", "governor"),
	})
}

// signals are what a gateway measures: beside what a dialler does, how devices
// come, and what waits for them.
func (g *Gateway) signals(f *flow) []governor.Signal {
	return append(g.base.signals(f), probes.AcceptQueue(g.device), probes.PendingBytes(f.out.roster))
}

// signals are what every program with a flow measures: itself, its way from and to
// the log, and Redis, if the log is there.
func (g *base) signals(f *flow) []governor.Signal {
	all := []governor.Signal{
		probes.ProcessMemory(), probes.Descriptors(),
		probes.TailLag(f.tail, g.opts.Watch), probes.TailDelay(f.tail, g.opts.Watch),
		probes.AppendLatency(f.appends),
	}
	if servers, ok := f.log.(probes.Servers); ok {
		all = append(all, probes.RedisMemory(servers, g.opts.Log.Window, g.opts.SweepInterval),
			probes.RedisOutput(servers), probes.RedisCommands(servers))
	}
	return all
}

// aheadMost is how far a cursor may be ahead of this gateway, in the log's time,
// and still be one: another gateway may have been faster.
const aheadMost = 10 * time.Second

// returns reports whether a device comes back: its cursor is one that the window
// may still hold, by the log's own time. Whether it does is asked only once there
// is room; here a device gains no more than a place that is meant for such.
func (f *flow) returns(p door.Pass) bool {
	return within(p.Start.Cursor, f.shards.Of(p.Device).Position(), f.window)
}

func within(cursor, head event.ID, window time.Duration) bool {
	if cursor.IsZero() || head.IsZero() {
		return false
	}
	ms := func(d time.Duration) uint64 { return uint64(max(d.Milliseconds(), 0)) } //nolint:gosec // not negative
	return cursor.Ms <= head.Ms+ms(aheadMost) && cursor.Ms+ms(window) >= head.Ms
}
