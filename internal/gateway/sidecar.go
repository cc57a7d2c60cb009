package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/access"
	"downlink/internal/backoff"
	"downlink/internal/certs"
	"downlink/internal/cors"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/fdtable"
	"downlink/internal/governor"
	"downlink/internal/governor/api"
	"downlink/internal/governor/probes"
	"downlink/internal/governor/rpc"
	"downlink/internal/governor/usage"
	"downlink/internal/jwt"
	"downlink/internal/limits"
	"downlink/internal/lobby"
	"downlink/internal/metrics"
	"downlink/internal/reload"
	"downlink/internal/server"
)

// governorListener is its listener's name, in log lines, errors and metrics.
const governorListener = "governor"

// A Sidecar is a governor for other programs: it watches Redis, and whoever asks
// hears the ratio. It has a port as a back end's, and no log.
type Sidecar struct {
	base
	law     *governor.Governor
	pages   *api.Handlers
	service *rpc.Service
	redis   watched
	use     usage.Book
	leaves  atomic.Bool
}

// NewSidecar binds the port and reads what files say, so that a wrong address or
// file is known at once.
func NewSidecar(o Options) (*Sidecar, error) {
	g := &Sidecar{redis: watched{url: o.Log.URL}}
	g.opts, g.registry = o, metrics.NewRegistry(metrics.ReadBuild(o.Version))
	g.metrics = sidecarInstruments(g.registry)
	g.ready = g.Ready
	governs, err := g.openOwnSettings()
	if err != nil {
		return nil, err
	}
	if g.identity, err = openCredentials(o, g.metrics, governs); err != nil {
		return nil, err
	}
	if g.law, err = g.govern(g.signals(), g.levers()); err != nil {
		return nil, err
	}
	g.pages = api.New(api.Options{Governor: func() *governor.Governor { return g.law }, Stay: stay, Logger: o.Logger.With("part", "governor")})
	g.service = rpc.New(rpc.Options{Governor: g.law, Use: &g.use, Stay: stay})
	part, err := ownDescriptors()
	if err != nil {
		return nil, err
	}
	fdtable.Grow(part.process)
	g.bindLimits(part)
	g.backend, err = g.listen(server.Options{
		Name: governorListener, Address: o.BackendListen, Reserve: part.reserve,
		Lobby: lobby.Options{
			Waiting: limits.Always(part.waiting), Streams: o.Limits.Value(limits.BackendConnections),
			Keep: true, Retry: time.Second, Metrics: g.metrics.lobby.Of(governorListener),
		},
		Handler: server.Backend(g.routes(), g.admin, g.Ready), TLS: g.identity.callers.tls(),
	})
	return g, err
}

// CheckSidecarFiles is CheckFiles for a governor for other programs.
func CheckSidecarFiles(o Options) (warnings []string, err error) {
	g := &Sidecar{base: base{opts: o}}
	if _, err := g.openOwnSettings(); err != nil {
		return nil, err
	}
	return g.checkFiles()
}

func (g *Sidecar) openOwnSettings() (reload.Source, error) {
	return g.openSettings(g.signals(), []string{governor.Admission}, nil)
}

// sidecarInstruments are those of the parts that a governor for other programs has.
func sidecarInstruments(reg prometheus.Registerer) instruments {
	return instruments{
		redis: redislog.NewMetrics(reg), lobby: lobby.NewMetrics(reg, governorListener), jwt: jwt.NewMetrics(reg),
		reload: reload.NewMetrics(reg, configSource, publishersSource, backendJWTSource, backendTLSSource, governorSource),
		access: access.NewMetrics(reg), backendCerts: certs.NewBackendMetrics(reg), governor: governor.NewMetrics(reg),
		cors: cors.NewMetrics(nil),
	}
}

// signals are what can be measured from beside: Redis, and this process itself.
// Whoever asks is let in or not; there is no other lever.
func (g *Sidecar) signals() []governor.Signal {
	all := []governor.Signal{
		probes.RedisMemory(&g.redis, g.opts.Log.Window, g.opts.SweepInterval),
		probes.RedisOutput(&g.redis), probes.RedisCommands(&g.redis),
		probes.ProcessMemory(), probes.Descriptors(),
	}
	for i := range all {
		all[i].Levers = []string{governor.Admission}
	}
	return all
}

// levers are the one that there is. How much of it is in use only those know who
// ask; unless they say it, a fall counts from where the lever stands.
func (g *Sidecar) levers() []governor.Lever {
	most, at := g.opts.Limits.Value(governorMaximum), new(atomic.Pointer[governor.Position])
	return []governor.Lever{{
		Name: governor.Admission, Unit: "places",
		Use: func() (float64, bool) {
			sum, known := g.use.Sum()
			full := float64(most())
			return sum / full, known && full > 0
		},
		Set: func(p governor.Position) { at.Store(&p) },
		Maximum: func() float64 {
			if p := at.Load(); p != nil {
				return float64(most()) * p.Ratio
			}
			return float64(most())
		},
	}}
}

func (g *Sidecar) bindLimits(part share) {
	all := g.opts.Limits
	all.Found(limits.Descriptors, int64(part.process))
	all.Found(limits.BackendConnections, int64(part.streams))
	all.Uses(limits.BackendConnections, func() float64 { _, streams := g.backend.Count(); return float64(streams) })
	all.Register(g.registry)
}

// routes are what is served. Who has a token may ask; who may everything may change.
func (g *Sidecar) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: api.Path, Handler: g.known(http.HandlerFunc(g.pages.Show))},
		{Method: http.MethodPatch, Path: api.Path, Handler: g.admin(http.HandlerFunc(g.pages.Patch))},
		{Method: http.MethodGet, Path: api.EventsPath, Handler: g.known(http.HandlerFunc(g.pages.Follow)), Slow: true},
		{Method: http.MethodPost, Path: usage.Path, Handler: g.known(usage.Handler(&g.use, http.HandlerFunc(g.pages.Show)))},
		{Path: rpc.Path, Handler: g.known(g.service)},
		{Path: rpc.PatchPath, Handler: g.admin(g.service)},
		{Path: rpc.HealthPath, Handler: g.service},
		{Method: http.MethodGet, Path: rpc.ProtoPath, Handler: rpc.Proto()},
		{Method: http.MethodGet, Path: limits.Path, Handler: g.admin(limits.Show(g.opts.Limits))},
		{Method: http.MethodPatch, Path: limits.Path, Handler: g.admin(limits.Apply(g.opts.Limits, g.opts.Logger.With("part", "limits")))},
		{Method: http.MethodGet, Path: "/metrics", Handler: metrics.Handler(g.registry, g.opts.Logger)},
	}
}

// known is h for everybody who shows a token that counts.
func (g *Sidecar) known(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := g.identity.callers.gate.Check(r); err != nil {
			access.Answer(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Addr is the bound address.
func (g *Sidecar) Addr() net.Addr { return g.BackendAddr() }

// Ready reports whether the governor answers. It is no less ready while Redis is
// away: it says so, holds the ratio, and nobody would hear more without it.
func (g *Sidecar) Ready() (ok bool, why string) {
	switch {
	case g.leaves.Load():
		return false, "going out of service"
	case !g.identity.ready():
		return false, "the keys for tokens have not been fetched yet"
	}
	return true, ""
}

// Run serves until ctx ends, and returns nil. An error means that it can't serve:
// the listener failed, or the URL names nothing that can be watched.
func (g *Sidecar) Run(ctx context.Context) error {
	g.sayBounds()
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	served := make(chan error, 1)
	var parts sync.WaitGroup
	parts.Go(func() { served <- g.backend.Serve() })
	parts.Go(func() { g.identity.run(ctx) })
	parts.Go(func() { _ = g.law.Run(ctx) }) // ends with ctx, without an error
	parts.Go(func() {
		if err := g.redis.find(ctx, redisOptions(g.opts, g.metrics.redis), g.opts.Logger); err != nil {
			failed <- err
		}
	})
	if g.opts.Started != nil {
		g.opts.Started()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-served:
	}
	g.stop()
	cancel()
	parts.Wait()
	g.settings.Close()
	return errors.Join(err, g.redis.close())
}

// stop ends what is asked, first what would never end by itself.
func (g *Sidecar) stop() {
	g.leaves.Store(true)
	g.service.Close()
	g.pages.Close()
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.ShutdownTimeout)
	defer cancel()
	g.backend.Shutdown(ctx)
}

// watched are the servers of Redis behind a URL, which may have to be found first.
// Safe for concurrent use.
type watched struct {
	url   string
	found atomic.Pointer[redislog.Servers]
	why   atomic.Pointer[error] // why they aren't found yet
}

var errNotYet = errors.New("Redis has not been looked for yet")

// Loads implements probes.Servers.
func (w *watched) Loads(ctx context.Context) []redislog.Load {
	if s := w.found.Load(); s != nil {
		return s.Loads(ctx)
	}
	err := errNotYet
	if why := w.why.Load(); why != nil {
		err = *why
	}
	return []redislog.Load{{Err: err}}
}

// find looks for the servers until ctx ends. The error says that it is useless.
func (w *watched) find(ctx context.Context, o redislog.Options, logger interface{ Warn(string, ...any) }) error {
	retry := backoff.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}
	said := ""
	for attempt := 0; ; attempt++ {
		s, err := redislog.OpenServers(ctx, o)
		switch {
		case err == nil:
			w.found.Store(s)
			return nil
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, eventlog.ErrUnavailable):
			return fmt.Errorf("Redis can't be watched: %w", err)
		case said != err.Error():
			said = err.Error()
			logger.Warn("the servers of Redis can't be found yet; trying on", "error", err)
		}
		w.why.Store(&err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry.Delay(attempt)):
		}
	}
}

func (w *watched) close() error {
	if s := w.found.Load(); s != nil {
		return s.Close()
	}
	return nil
}
