// Package gateway owns the assembly: which part is made from which, in what
// order they start and stop, and what "ready" means. It is the only package
// that knows every stage's concrete type, and it does no stage's work. Its
// invariant: when Run returns, everything that it started has ended.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"downlink/internal/door"
	"downlink/internal/eventlog"
	"downlink/internal/fdtable"
	"downlink/internal/limits"
	"downlink/internal/poll"
	"downlink/internal/publish"
	"downlink/internal/revoked"
	"downlink/internal/server"
	"downlink/internal/sse"
)

// Options are a gateway's settings as plain values. The meaning, unit and
// limits of each stand in docs/reference/configuration.md under the same name.
type Options struct {
	Listen            string
	BackendListen     string
	ReadHeaderTimeout time.Duration
	ShutdownTimeout   time.Duration

	Identity       IdentityOptions // how devices are known
	Certificate    CertFiles       // of the devices' port
	Entrance       EntranceOptions // who may come in
	Origins        []string        // of pages that may read
	Backend        BackendOptions  // who may call the back end's port
	ReloadInterval time.Duration   // how often files of keys and certificates are read again; 0 means 5 s

	Log            LogOptions
	PublishTimeout time.Duration
	SweepInterval  time.Duration
	Watch          time.Duration // how often the watchdog looks; 0 means 2 s

	Keepalive        time.Duration
	WriteTimeout     time.Duration
	Retry            time.Duration
	Driver           string // "light", which is also meant by nothing, or "ordinary"
	MaxConnectionAge time.Duration

	// Limits is everything that caps; required.
	Limits *limits.Registry
	// Reread reads the configuration file again, as a reload.Source does; nil:
	// there is none. Hangup (SIGHUP) has it and all other files read at once.
	Reread func() (changed bool, err error)
	Hangup <-chan os.Signal
	// Drain says how it goes out of service. Hurry closes it at once: who asks
	// for the end of Run once more hasn't the time that a drain takes.
	Drain DrainOptions
	Hurry <-chan struct{}

	// GovernorFile holds the governor's settings; empty: there is none. Governed says
	// whether it moves anything, whatever the file says, and is asked each time that
	// files are read; nil: it does.
	GovernorFile string
	Governed     func() bool
	// ShedAfter is how long a stream must have been here before the limit
	// governor_shed_rate lets it go.
	ShedAfter time.Duration

	Version string
	Logger  *slog.Logger
	// Started, if set, is called once: the log has been reached, and devices
	// are served.
	Started func()
}

// A Gateway is the program: two listeners, and the flow from the log to the
// devices between them.
type Gateway struct {
	base

	// These answer devices until the log has been reached.
	starting, startingPolls http.Handler
	device                  *server.Server

	out    exits
	levers *levers // of the governor
}

// New binds both listeners, so that a wrong address is known at once.
func New(o Options) (*Gateway, error) {
	if o.Watch == 0 {
		o.Watch = 2 * time.Second
	}
	g := new(Gateway)
	g.prepare(o)
	g.ready, g.address = g.Ready, func() string { return g.DeviceAddr().String() }
	governs, err := g.openFlowSettings(g.signals(g.outline()))
	if err != nil {
		return nil, err
	}
	if g.identity, err = openCredentials(o, g.metrics, governs); err != nil {
		return nil, err
	}
	g.out = newExits(o, g.instance, g.metrics)
	g.levers = newLevers(o.Limits, g.metrics.governor)
	early := door.New(door.Options{Retry: o.Retry, Metrics: g.metrics.door})
	g.starting, g.startingPolls = sse.Starting(early), poll.Starting(early)
	devices, backend, err := shareDescriptors()
	if err != nil {
		return nil, err
	}
	fdtable.Grow(devices.process)
	g.bindLimits(devices, backend)
	g.device, err = g.listen(g.devices(devices))
	if err != nil {
		return nil, err
	}
	g.backend, err = g.listen(g.backends(backend))
	if err != nil {
		g.device.Close()
		return nil, err
	}
	return g, nil
}

func (g *Gateway) devices(s share) server.Options {
	o := server.Options{
		Name: deviceListener, Address: g.opts.Listen, Lobby: g.deviceLobby(), Reserve: s.reserve,
		Handler: server.Device(g.deviceRoutes(), g.Ready), TLS: g.identity.tls(),
	}
	if g.opts.Driver != ordinaryDriver && o.TLS == nil {
		o.Stream, o.StreamPath = g.forPages(g.events), sse.Path
	}
	return o
}

func (g *Gateway) backends(s share) server.Options {
	o := server.Options{
		Name: backendListener, Address: g.opts.BackendListen, Lobby: g.backendLobby(s), Reserve: s.reserve,
		Handler: server.Backend(g.routes(), g.admin, g.Ready), TLS: g.identity.callers.tls(),
	}
	if o.TLS == nil {
		o.Brief, o.BriefPath = server.Brief(http.HandlerFunc(g.publish)), publish.Path
	}
	return o
}

// DeviceAddr is the bound address of the devices' port.
func (g *Gateway) DeviceAddr() net.Addr { return g.device.Addr() }

// Run serves until it was drained, which the end of ctx begins if nothing else
// does; then it lets requests finish, and returns nil. An error means that the
// gateway can't serve: a listener failed, or the log refuses these settings.
func (g *Gateway) Run(ctx context.Context) error {
	g.sayBounds()
	fresh, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { g.identity.run(fresh) })
	defer keeping.Wait()
	defer cancel()
	failed := make(chan error, 2)
	go func() { failed <- g.device.Serve() }()
	go func() { failed <- g.backend.Serve() }()
	err := g.serve(ctx, failed)
	g.stop()
	return errors.Join(err, <-failed, <-failed)
}

// serve runs until the gateway was drained or something fails. What a listener
// reports is put back for Run, which waits for both.
func (g *Gateway) serve(stop context.Context, failed chan error) error {
	ctx, cancel := context.WithCancel(context.Background())
	drained, ended := g.out.begin(ctx, g.opts, stop.Done())
	defer func() { cancel(); ended() }()
	opened := make(chan error, 1)
	go func() {
		opened <- g.open(ctx, func(log eventlog.Log, lists *revoked.Set) (*flow, error) {
			return g.startFlow(log, lists)
		})
	}()
	asked := stop.Done()
	for {
		select {
		case err := <-opened:
			if err != nil {
				return err
			}
			opened = nil
		case err := <-failed:
			cancel()
			failed <- err
			if opened != nil {
				return <-opened
			}
			return nil
		case err := <-g.failed:
			return fmt.Errorf("the log can't be used any more: %w", err)
		case <-asked:
			asked = nil
			if opened != nil { // nobody could come yet
				cancel()
				return <-opened
			}
		case <-drained:
			cancel()
			if opened != nil {
				return <-opened
			}
			return nil
		}
	}
}

// stop ends streams that are left first, so that devices are told when to come
// back, then the requests, and the flow last.
func (g *Gateway) stop() {
	g.out.drain.Finish()
	g.governing.Close()
	f := g.flow.Load()
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.ShutdownTimeout)
	defer cancel()
	// Together: a device that doesn't go must not use up the time in which a
	// publisher could have its answer.
	var servers sync.WaitGroup
	servers.Go(func() { g.device.Shutdown(ctx) })
	servers.Go(func() { g.backend.Shutdown(ctx) })
	servers.Wait()
	if f != nil {
		f.driver.Close(ctx)
		f.stop(g.opts.Logger)
	}
	g.settings.Close()
}

// Ready reports whether devices can be served, and if not, why.
func (g *Gateway) Ready() (ok bool, why string) {
	f := g.flow.Load()
	switch {
	case !g.out.drain.Ready():
		return false, "going out of service"
	case f == nil:
		return false, "the log has not been reached yet"
	case !g.identity.ready():
		return false, "the keys for device tokens have not been fetched yet"
	case !f.tail.Ready():
		return false, "the tail has no position yet, or the log moves and the tail does not"
	case stopped(f.log):
		return false, "the disk of the embedded log has failed a write: no more events are taken until the gateway is restarted"
	}
	return true, ""
}

// stopped reports whether a log will take nothing more, whatever happens: one on a
// disk that failed. A Redis that is away comes back, and others see it, too.
func stopped(log eventlog.Log) bool {
	s, can := log.(interface{ Stopped() bool })
	return can && s.Stopped()
}

// events serves GET /events.
func (g *Gateway) events(w http.ResponseWriter, r *http.Request) {
	if f := g.flow.Load(); f != nil {
		f.events.ServeHTTP(w, r)
		return
	}
	g.starting.ServeHTTP(w, r)
}

// polls serves GET /poll.
func (g *Gateway) polls(w http.ResponseWriter, r *http.Request) {
	if f := g.flow.Load(); f != nil {
		f.polls.ServeHTTP(w, r)
		return
	}
	g.startingPolls.ServeHTTP(w, r)
}

// Check compares what should be the same number: sessions by the roster, and
// members by the shards' count. It is exact while nothing comes or goes.
func (g *Gateway) Check() error {
	f := g.flow.Load()
	if f == nil {
		return nil
	}
	if sessions, members := g.out.roster.Len(), f.shards.Members(); sessions != members {
		return fmt.Errorf("there are %d sessions, but the shards have %d members", sessions, members)
	}
	return nil
}
