package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/access"
	"downlink/internal/certs"
	"downlink/internal/console"
	"downlink/internal/cors"
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
	"downlink/internal/problem"
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
	service *rpc.Service
	redis   watched
	use     usage.Book
	// opinion is set once what it says is worth hearing.
	opinion, leaves atomic.Bool
	// beyond is set while more is in use than the maximum fits.
	beyond atomic.Bool
}

// warmUp is for how long all must have been read before there is an opinion: a signal
// is over its threshold when it has been for 10 s, and Redis is asked every 5 s. Before
// that the ratio is 1 whatever there is to be seen, and a governor that was restarted
// while Redis is full would let everybody in.
const warmUp = 15 * time.Second

// NewSidecar binds the port and reads what files say, so that a wrong address or
// file is known at once.
func NewSidecar(o Options) (*Sidecar, error) {
	g := new(Sidecar)
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
	g.governing = api.New(api.Options{Governor: func() *governor.Governor { return g.law }, Stay: stay, Logger: o.Logger.With("part", "governor")})
	g.service = rpc.New(rpc.Options{Governor: g.law, Use: &g.use, Stay: stay, Opinion: g.opinion.Load})
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
	all := []governor.Signal{probes.ProcessMemory(), probes.Descriptors()}
	if !g.opts.Log.embedded() {
		all = append(all, probes.RedisMemory(&g.redis, g.opts.Log.Window, g.opts.SweepInterval),
			probes.RedisOutput(&g.redis), probes.RedisCommands(&g.redis))
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
		Name: governor.Admission, Unit: "places", Stays: true, // players, sessions: who is in is in
		Use: func() (float64, bool) { return g.used(float64(most())) },
		Set: func(p governor.Position) { at.Store(&p) },
		Maximum: func() float64 {
			if p := at.Load(); p != nil {
				return float64(most()) * p.Ratio
			}
			return float64(most())
		},
	}}
}

// fits is up to how much of the maximum may be in use. Somewhat more are those who
// haven't left yet; much more means that ratio 1 stands for something else, and a
// lever that waited for them to leave would never fall.
const fits = 1.2

// used is what the programs say that they use, as a part of what ratio 1 stands for.
// Safe for concurrent use.
func (g *Sidecar) used(full float64) (part float64, known bool) {
	sum, known := g.use.Sum()
	if !known || full == 0 {
		return 0, false
	}
	beyond := sum > fits*full
	if beyond && !g.beyond.Swap(beyond) {
		g.opts.Logger.Warn("the programs that ask use more than governor_maximum: it isn't what ratio 1 stands for; until it fits, a fall counts from the ratio", "use", sum, "governor_maximum", full)
	}
	g.beyond.Store(beyond)
	return min(sum/full, 1), !beyond
}

func (g *Sidecar) bindLimits(part share) {
	all := g.opts.Limits
	all.Found(limits.Descriptors, int64(part.process))
	all.Found(limits.BackendConnections, int64(part.streams))
	all.Uses(limits.BackendConnections, func() float64 { _, streams := g.backend.Count(); return float64(streams) })
	all.Uses(governorFollowers, func() float64 { return float64(g.governing.Following()) })
	all.Uses(governorWatchers, func() float64 { return float64(g.service.Watching()) })
	all.Uses(governorHealth, func() float64 { return float64(g.service.WatchingHealth()) })
	all.Uses(governorCallers, func() float64 { return float64(g.use.Len()) })
	all.Register(g.registry)
}

// routes are what is served. The page is for everybody: what it shows it asks for, as
// who reads it.
func (g *Sidecar) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: api.Path, Handler: g.asks(g.settled(g.governing.Show))},
		{Method: http.MethodPatch, Path: api.Path, Handler: g.admin(http.HandlerFunc(g.governing.Patch))},
		{Method: http.MethodGet, Path: api.EventsPath, Handler: g.asks(g.settled(g.governing.Follow))},
		{Method: http.MethodPost, Path: usage.Path, Handler: g.asks(usage.Handler(&g.use, g.settled(g.governing.Show)))},
		{Path: rpc.Path, Handler: g.asks(g.service)},
		{Path: rpc.PatchPath, Handler: g.admin(g.service)},
		{Path: rpc.HealthPath, Handler: g.service},
		{Method: http.MethodGet, Path: console.Path, Handler: console.Handler()},
		{Method: http.MethodGet, Path: rpc.ProtoPath, Handler: rpc.Proto()},
		{Method: http.MethodGet, Path: limits.Path, Handler: g.admin(limits.Show(g.opts.Limits))},
		{Method: http.MethodPatch, Path: limits.Path, Handler: g.admin(limits.Apply(g.opts.Limits, g.opts.Logger.With("part", "limits")))},
		{Method: http.MethodGet, Path: "/metrics", Handler: metrics.Handler(g.registry, g.opts.Logger)},
	}
}

// settled is h once the governor has an opinion.
func (g *Sidecar) settled(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.opinion.Load() {
			problem.Write(w, problem.New(problem.NoOpinion, g.lacking()))
			return
		}
		h(w, r)
	})
}

// Addr is the bound address.
func (g *Sidecar) Addr() net.Addr { return g.BackendAddr() }

// Ready reports whether the governor is to be asked. It is no less ready while Redis
// is away: it says so, holds the ratio, and nobody would hear more without it.
func (g *Sidecar) Ready() (ok bool, why string) {
	switch {
	case g.leaves.Load():
		return false, "going out of service"
	case !g.identity.ready():
		return false, "the keys for tokens have not been fetched yet"
	case !g.opinion.Load():
		return false, "it has no opinion yet: " + g.lacking()
	}
	return true, ""
}

// Run serves until ctx ends, and returns nil. An error means that it can't serve:
// the listener failed, or the URL names nothing that can be watched.
func (g *Sidecar) Run(ctx context.Context) error {
	g.sayBounds()
	ctx, cancel := context.WithCancel(ctx)
	failed, served := make(chan error, 1), make(chan error, 1)
	var parts sync.WaitGroup
	parts.Go(func() { served <- g.backend.Serve() })
	parts.Go(func() { g.identity.run(ctx) })
	looked := make(chan struct{}) // for Redis, once: else the first readings fail, and the next are seconds later
	parts.Go(func() {
		<-looked
		_ = g.law.Run(ctx) // ends with ctx, without an error
	})
	parts.Go(func() { g.warm(ctx) })
	parts.Go(func() {
		if err := g.find(ctx, sync.OnceFunc(func() { close(looked) })); err != nil {
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

// find finds Redis, if there is one, and says when it has looked for the first time.
// The error says that it is useless to go on.
func (g *Sidecar) find(ctx context.Context, looked func()) error {
	defer looked()
	if g.opts.Log.embedded() {
		g.opts.Logger.Warn("no Redis is watched, because --log names none: only this process, and the groups of Kafka that the governor's file names")
		return nil
	}
	return g.redis.find(ctx, redisOptions(g.opts, g.metrics.redis), looked, g.opts.Logger)
}

// warm looks until there is an opinion: all was read for long enough, or what was read
// is bad enough already.
func (g *Sidecar) warm(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	complete := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if g.unread() != "" {
			complete = time.Now()
		}
		if time.Since(complete) >= warmUp || g.law.State().Levers[0].Ratio < 1 {
			g.opinion.Store(true)
			g.service.Open()
			return
		}
	}
}

// unread says of a signal that moves the lever that it isn't known, and why; nothing
// if all are.
func (g *Sidecar) unread() string {
	for _, s := range g.law.State().Signals {
		if s.Threshold > 0 && len(s.Levers) > 0 && (s.Verdict == governor.Unknown || s.Verdict == "") {
			return s.Name + " isn't known: " + s.Error
		}
	}
	return ""
}

// lacking says why there is no opinion yet.
func (g *Sidecar) lacking() string {
	if why := g.unread(); why != "" {
		return why
	}
	return "not everything that it goes by has been read for " + warmUp.String()
}

// stop ends what is asked, first what would never end by itself.
func (g *Sidecar) stop() {
	g.leaves.Store(true)
	g.service.Close()
	g.governing.Close()
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.ShutdownTimeout)
	defer cancel()
	g.backend.Shutdown(ctx)
}
