package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/dial"
	"downlink/internal/egress"
	"downlink/internal/eventlog"
	"downlink/internal/fdtable"
	"downlink/internal/inventory"
	"downlink/internal/lease"
	"downlink/internal/limits"
	"downlink/internal/post"
	"downlink/internal/push"
	"downlink/internal/reload"
	"downlink/internal/revoked"
	"downlink/internal/server"
)

// DialOptions are what a dialler has beside Options, of which it uses what concerns
// the log, the back end's port, and sessions.
type DialOptions struct {
	Owner     Owner
	Transport Transport
	Inventory InventoryOptions
	Egress    EgressOptions

	Member      string // name, of a ring
	Index       int    // of static members, from 0
	Members     int
	Replication int
	LeaseTTL    time.Duration

	DialTimeout time.Duration
	BackoffMax  time.Duration
	PostTimeout time.Duration
	PushWait    time.Duration
	Deadline    time.Duration // of going out of service
}

// An Owner says by what a member knows which devices are its own.
type Owner string

// The owners.
const (
	Nobody Owner = "none"
	Static Owner = "static"
	Ring   Owner = "ring"
)

// A Dialler is the program that connects to devices: the back end's port, and
// the flow from the log to links that it opens itself; or, where nobody owns a
// device, only what passes events on at once.
type Dialler struct {
	base
	dial  DialOptions
	dials dialInstruments

	egress     *egress.Egress
	poster     *post.Poster
	inventory  *inventory.Inventory
	closeTable func() // of an inventory in Redis; else nil

	levers *levers       // of the governor
	push   *push.Handler // with owner none alone
	engine atomic.Pointer[dial.Engine]
	member atomic.Pointer[lease.Member] // of a ring
	leaves atomic.Bool
	haste  context.Context // ends when somebody has asked twice for the end
}

// NewDialler binds the back end's port and reads what files say, so that a wrong
// address or file is known at once.
func NewDialler(o Options, d DialOptions) (*Dialler, error) {
	if o.Watch == 0 {
		o.Watch = 2 * time.Second
	}
	g := &Dialler{dial: d}
	g.prepare(o)
	g.dials = newDialInstruments(g.registry)
	g.ready, g.address = g.Ready, func() string { return g.BackendAddr().String() }
	g.base.dials = g.whoDials
	devices, backend, err := shareDescriptors()
	if err != nil {
		return nil, err
	}
	if d.Owner == Nobody { // a push holds one connection of each kind
		devices, backend = evenly(devices, backend)
	}
	g.dial.Egress.MaxIdle = devices.waiting
	if err := g.openDevices(); err != nil {
		return nil, err
	}
	governs, err := g.openFlowSettings(g.signals(g.outline()))
	if err != nil {
		return nil, err
	}
	if g.identity, err = openCredentials(o, g.metrics, governs, reload.Source{Name: dialledSource, Load: g.egress.Load}); err != nil {
		return nil, err
	}
	fdtable.Grow(devices.process)
	g.levers = newLevers(o.Limits, g.metrics.governor)
	g.bindLimits(devices, backend)
	if d.Owner == Nobody {
		g.push = g.newPush()
	}
	g.backend, err = g.listen(server.Options{
		Name: backendListener, Address: o.BackendListen, Lobby: g.backendLobby(backend), Reserve: backend.reserve,
		Handler: server.Backend(g.routes(), g.admin, g.Ready), TLS: g.identity.callers.tls(),
	})
	return g, err
}

// bindLimits joins the limits with what the process was given.
func (g *Dialler) bindLimits(devices, backend share) {
	all := g.opts.Limits
	all.Found(limits.Descriptors, int64(devices.process))
	all.Found(limits.BackendConnections, int64(backend.streams))
	all.Bind(maxConnections, fitting(devices.streams+devices.waiting, devices))
	all.Uses(maxConnections, func() float64 {
		if e := g.engine.Load(); e != nil {
			return float64(e.Sockets())
		}
		return 0
	})
	g.bindLevers()
	all.Bind(pushInFlight, fitting(devices.streams, devices))
	all.Uses(pushInFlight, func() float64 {
		if g.push == nil { // there is an owner
			return 0
		}
		return float64(g.push.InFlight())
	})
	all.Uses(inventoryDevices, func() float64 { return float64(g.inventory.Len()) })
	all.Uses(limits.BackendConnections, func() float64 { _, streams := g.backend.Count(); return float64(streams) })
	all.Uses(hotBytes, g.hotBytes)
	all.Register(g.registry)
}

// Run serves until ctx ends, then goes out of service in order, and returns nil.
// An error means that it can't serve: the listener failed, the log refuses these
// settings, or another member has its name.
func (g *Dialler) Run(ctx context.Context) error {
	g.sayBounds()
	fresh, cancel := context.WithCancel(context.Background())
	haste, hasten := context.WithCancel(context.Background())
	g.haste = haste
	var keeping sync.WaitGroup
	keeping.Go(func() {
		defer hasten()
		select {
		case <-g.opts.Hurry:
		case <-fresh.Done():
		}
	})
	keeping.Go(func() { g.identity.run(fresh) })
	keeping.Go(func() { _ = g.inventory.Run(fresh) }) // ends with fresh, without an error
	defer keeping.Wait()
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- g.backend.Serve() }()
	err := g.serve(ctx, failed)
	g.stop()
	return errors.Join(err, <-failed)
}

// serve runs until ctx ends or something fails. What the listener reports is put
// back for Run.
func (g *Dialler) serve(stop context.Context, failed chan error) error {
	ctx, cancel := context.WithCancel(stop)
	defer cancel()
	parts := make(chan error, 1)
	go func() { parts <- g.run(ctx) }()
	select {
	case err := <-parts:
		return err
	case err := <-failed:
		cancel()
		failed <- err
		return <-parts
	case err := <-g.failed:
		cancel()
		return errors.Join(fmt.Errorf("the log can't be used any more: %w", err), <-parts)
	}
}

// run reaches the log and owns devices until ctx ends; with owner none there is
// nothing to do.
func (g *Dialler) run(ctx context.Context) error {
	if g.dial.Owner == Nobody {
		g.started()
		<-ctx.Done()
		g.leaves.Store(true)
		return nil
	}
	err := g.open(ctx, func(log eventlog.Log, lists *revoked.Set) (*flow, error) {
		return g.startFlow(log, lists)
	})
	f := g.flow.Load()
	if err != nil || f == nil {
		return err
	}
	return g.own(ctx, f)
}

// startFlow makes the parts between the log and whoever owns devices.
func (g *Dialler) startFlow(log eventlog.Log, lists *revoked.Set) (f *flow, err error) {
	f = newFlow(g.opts, g.levers, nil, log, lists, g.identity, g.metrics, g.registry)
	if f.governor, err = g.govern(g.signals(f), g.leversOf(f)); err != nil {
		return nil, err
	}
	f.run(g.failed, append(f.parts, f.governor.Run)...)
	return f, nil
}

func (g *Dialler) started() {
	if g.opts.Started != nil {
		g.opts.Started()
	}
}

// stop ends requests, and the flow last.
func (g *Dialler) stop() {
	g.leaves.Store(true)
	g.governing.Close()
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.ShutdownTimeout)
	defer cancel()
	g.backend.Shutdown(ctx)
	if f := g.flow.Load(); f != nil {
		f.stop(g.opts.Logger)
	}
	g.settings.Close()
	g.closeDevices()
}

// closeDevices frees what openDevices made.
func (g *Dialler) closeDevices() {
	g.egress.Close()
	if g.closeTable != nil {
		g.closeTable()
	}
}

// Ready reports whether events reach devices, and if not, why.
func (g *Dialler) Ready() (ok bool, why string) {
	switch {
	case g.leaves.Load():
		return false, "going out of service"
	case !g.inventory.Ready():
		return false, "the inventory has not been read yet"
	case !g.identity.ready():
		return false, "the keys for tokens have not been fetched yet"
	case g.dial.Owner == Nobody:
		return true, ""
	}
	f := g.flow.Load()
	switch {
	case f == nil:
		return false, "the log has not been reached yet"
	case !f.tail.Ready():
		return false, "the tail has no position yet, or the log moves and the tail does not"
	case stopped(f.log):
		return false, "the disk of the embedded log has failed a write: no more events are taken until the dialler is restarted"
	}
	return true, ""
}
