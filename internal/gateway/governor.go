package gateway

import (
	"time"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/governor"
	"downlink/internal/governor/kafkalag"
	"downlink/internal/governor/probes"
	"downlink/internal/governor/settingsfile"
	"downlink/internal/reload"
)

// govern makes a program's governor, once openSettings has read what governs it.
func (g *base) govern(signals []governor.Signal, levers []governor.Lever) (*governor.Governor, error) {
	signals = append(signals, g.kafka.Signal())
	law, err := governor.New(governor.Options{
		Signals: signals, Settings: governor.Defaults(signals), Levers: levers,
		Metrics: g.metrics.governor, Logger: g.opts.Logger.With("part", "governor"),
	})
	if err != nil {
		return nil, err
	}
	return law, g.settings.Govern(law)
}

// openSettings reads the governor's file, so that a wrong one is known at once.
// signals are those that there will be, beside Kafka's.
func (g *base) openSettings(signals []governor.Signal, levers []string, elsewhere map[string]string) (reload.Source, error) {
	g.kafka = new(kafkalag.Slot)
	var err error
	g.settings, err = settingsfile.Open(settingsfile.Options{
		Path: g.opts.GovernorFile, On: g.opts.Governed, Elsewhere: elsewhere, Kafka: g.kafka,
		Signals: append(signals, g.kafka.Signal()), Levers: levers,
	})
	return reload.Source{Name: governorSource, Load: g.settings.Load}, err
}

// openFlowSettings is openSettings for a gateway or a dialler.
func (g *base) openFlowSettings(signals []governor.Signal) (reload.Source, error) {
	return g.openSettings(signals, []string{governor.Admission, governor.Publish}, map[string]string{
		"floor": "is the limit " + governorFloor + " here: set it in the configuration, in percent",
	})
}

// outline is a flow of which only the kind of its log is known: enough to say
// which signals there will be.
func (g *base) outline() *flow {
	if g.opts.Log.embedded() {
		return new(flow)
	}
	return &flow{log: struct {
		eventlog.Log
		probes.Servers
	}{}}
}

// Signals are those that a gateway with its log in Redis has by itself, for
// whoever describes them: they can't be read.
func Signals() []governor.Signal {
	g := new(Gateway)
	return append(g.signals(g.outline()), new(kafkalag.Slot).Signal())
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
