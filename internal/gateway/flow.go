package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/conn"
	"downlink/internal/control"
	"downlink/internal/eventlog"
	"downlink/internal/governor"
	"downlink/internal/governor/probes"
	"downlink/internal/poll"
	"downlink/internal/publish"
	"downlink/internal/revoked"
	"downlink/internal/shard"
	"downlink/internal/sse"
	"downlink/internal/sweep"
	"downlink/internal/tail"
	"downlink/internal/trail"
)

// flow is everything between the log and the two endpoints.
type flow struct {
	log      eventlog.Log
	shards   *shard.Set
	tail     *tail.Tail
	driver   conn.Driver
	events   *sse.Handler
	polls    *poll.Handler
	trail    *trail.Trail
	publish  *publish.Handler
	revoked  *revoked.Set
	control  *control.Handler
	appends  *probes.Appends // to the log, measured
	window   time.Duration
	levers   *levers
	governor *governor.Governor

	out   exits
	parts []func(context.Context) error // of every flow; they run until it stops

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

const (
	// pageBytes of one read of the past, and how many are in flight.
	pageBytes = 1 << 20
	maxLaps   = 8
	// resyncEvery spreads the fetches of full states: 500 a second.
	resyncEvery = 2 * time.Millisecond
)

// startFlow makes the parts in the order in which an event passes them.
func (g *Gateway) startFlow(log eventlog.Log, lists *revoked.Set) (*flow, error) {
	o, c := g.opts, g.identity
	driver, err := newDriver(o)
	if err != nil {
		return nil, err
	}
	f := newFlow(o, g.levers, o.Limits.Value(deviceStreams), log, lists, c, g.metrics, g.registry)
	f.driver, f.out, f.window = driver, g.out, o.Log.Window
	if f.governor, err = g.govern(g.signals(f), g.leversOf(f)); err != nil {
		driver.Close(context.Background())
		return nil, err
	}
	f.openToDevices(o, c, g.metrics)
	c.onChange(g.out.roster.EndWithdrawn)
	c.pages.reached(log)
	f.run(g.failed, append(append(f.exits(o, g.metrics), f.governor.Run), f.parts...)...)
	return f, nil
}

// newFlow makes the parts that every flow has, up to the shards. A device may have
// so many streams; nil: any number, as a dialler opens them itself.
func newFlow(o Options, l *levers, streams func() int, log eventlog.Log, lists *revoked.Set, c *credentials, m instruments, reg prometheus.Registerer) *flow {
	f := &flow{log: log, revoked: lists, appends: probes.TimeAppends(log), levers: l}
	f.shards = shard.NewSet(log, shard.Options{
		Shards: log.Shards(), HotBytes: o.Limits.Value(hotBytes), StreamsPerDevice: streams,
		PageBytes: pageBytes, MaxLaps: maxLaps, Pacer: shard.NewPacer(resyncEvery),
		Metrics: m.shard,
	})
	f.shards.Register(reg)
	f.tail = tail.New(log, f.shards, tail.Options{
		Window: o.Log.Window, Watch: o.Watch, Pause: o.Log.pause(),
		Orders:  orders{f.shards, lists},
		Metrics: m.tail, Logger: o.Logger.With("part", "tail"),
	})
	f.trail = trail.New(trail.Options{Entries: o.Limits.Value(trailEntries), Metrics: m.trail})
	f.publish = publish.New(publish.Options{
		Log: f.appends, Shards: log.Shards(), MaxEventBytes: o.Limits.Value(eventBytes),
		Rate: o.Limits.Value(publishRate), Because: l.because,
		PublisherRate: o.Limits.Value(publisherRate), TargetRate: o.Limits.Value(targetRate),
		AppendTimeout: o.PublishTimeout, Sender: c.callers.sender, Logger: o.Logger.With("part", "publish"), Metrics: m.publish,
	})
	sweeper := sweep.New(log, sweep.Options{
		Interval: o.SweepInterval, Recent: f.shards,
		Metrics: m.sweep, Logger: o.Logger.With("part", "sweep"),
	})
	f.control = control.New(control.Options{
		Log: log, Shards: log.Shards(), Timeout: o.PublishTimeout, Caller: c.callers.name,
		Metrics: m.control, Logger: o.Logger.With("part", "control"),
	})
	f.parts = []func(context.Context) error{f.shards.Run, f.tail.Run, lists.Run, sweeper.Run}
	return f
}

// ordinaryDriver is the setting that leaves every connection to net/http.
const ordinaryDriver = "ordinary"

func newDriver(o Options) (conn.Driver, error) {
	ordinary := conn.Ordinary{KeepAlive: o.Keepalive, WriteTimeout: o.WriteTimeout}
	if o.Driver == ordinaryDriver {
		return ordinary, nil
	}
	return conn.NewLight(ordinary)
}

// run starts the parts; the first that can't go on is told to failed.
func (f *flow) run(failed chan<- error, parts ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	for _, part := range parts {
		f.ended.Go(func() {
			err := part(ctx)
			if err == nil {
				return // ctx has ended
			}
			select {
			case failed <- err:
			default:
			}
		})
	}
}

func (f *flow) stop(log *slog.Logger) {
	f.cancel()
	f.ended.Wait()
	if err := f.log.Close(); err != nil {
		log.Error("closing the log failed; what was acknowledged is stored all the same", "error", err)
	}
}
