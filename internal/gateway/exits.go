package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"downlink/internal/ageing"
	"downlink/internal/door"
	"downlink/internal/drain"
	"downlink/internal/event"
	"downlink/internal/rebalance"
	"downlink/internal/server"
	"downlink/internal/session"
)

// DrainOptions say how a gateway goes out of service. Beside them count the limit
// drain_rate and ShutdownTimeout, which is the last part of Deadline.
type DrainOptions struct {
	Wait           time.Duration
	Quiet          time.Duration // 0: the wait is as long as Wait
	Deadline       time.Duration // 0: there is none
	File           string        // whose appearance begins it; empty: there is none
	IsolationAfter time.Duration // 0: streams stay while the log is away
	RebalanceAfter time.Duration // how long gateways and streams must have stood before any is ended to spread them
}

// exits are the ways by which sessions leave the gateway that it decides.
type exits struct {
	roster *session.Roster
	ages   *ageing.Book
	drain  *drain.Drain
	even   *rebalance.Balancer

	handlers *drain.Handlers
}

func newExits(o Options, instance string, m instruments) exits {
	out := exits{roster: new(session.Roster), ages: ageing.New()}
	out.even = rebalance.New(rebalance.Options{
		Name: instance, Single: o.Log.embedded(),
		Rate: o.Limits.Value(rebalanceRate), Threshold: o.Limits.Value(rebalanceThreshold), After: o.Drain.RebalanceAfter,
		Most: o.Limits.Value(maxConnections), Retry: o.Retry,
		Roster: out.roster, Ages: out.ages,
		Metrics: m.rebalance, Logger: o.Logger.With("part", "rebalance"),
	})
	out.drain = drain.New(drain.Options{
		Wait: o.Drain.Wait, Quiet: o.Drain.Quiet, Deadline: o.Drain.Deadline, Last: o.ShutdownTimeout,
		Rate: o.Limits.Value(drainRate), Retry: o.Retry,
		Roster: out.roster, Ages: out.ages, Rebalance: out.even.Status,
		Metrics: m.drain, Logger: o.Logger.With("part", "drain"),
	})
	out.handlers = out.drain.Handlers()
	return out
}

// DrainTerms is the arithmetic of a drain with these settings.
func DrainTerms(o Options) drain.Terms {
	return drain.Terms{
		Wait: o.Drain.Wait, Rate: o.Limits.Value(drainRate)(), Deadline: o.Drain.Deadline, Last: o.ShutdownTimeout,
	}
}

// begin starts what may ask for a drain, and what carries it out, until ctx ends:
// drained is closed when one has come to its end. ended waits for all of them.
func (out exits) begin(ctx context.Context, o Options, stop <-chan struct{}) (drained <-chan struct{}, ended func()) {
	over := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() {
		if out.drain.Run(ctx) {
			close(over)
		}
	})
	parts.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			out.drain.Begin(drain.BySignal)
		}
		select {
		case <-ctx.Done():
		case <-o.Hurry:
			out.drain.Hasten()
		}
	})
	if o.Drain.File != "" {
		parts.Go(func() { out.drain.Watch(ctx, o.Drain.File) })
	}
	return over, parts.Wait
}

// exits are the parts of the flow that end sessions.
func (f *flow) exits(o Options, m instruments) []func(context.Context) error {
	parts := []func(context.Context) error{f.out.ages.Run, f.shed(o, m)}
	if board, ok := f.log.(rebalance.Board); ok {
		parts = append(parts, func(ctx context.Context) error { return f.out.even.Run(ctx, board, f.taking) })
	}
	if o.Drain.IsolationAfter > 0 && !o.Log.embedded() { // or there is no other gateway
		parts = append(parts, func(ctx context.Context) error {
			return drain.Isolate(ctx, drain.IsolationOptions{
				After: o.Drain.IsolationAfter, Cut: f.cutOff, Rate: o.Limits.Value(drainRate),
				Roster: f.out.roster, Ages: f.out.ages,
				Metrics: m.drain, Logger: o.Logger.With("part", "drain"),
			})
		})
	}
	return parts
}

// awayShort is how long a part of the log may be away from a gateway that takes
// devices: as long as others believe what it last said of itself.
const awayShort = 10 * time.Second

// taking reports whether devices should find this gateway.
func (f *flow) taking() bool {
	return f.out.drain.Ready() && f.tail.Ready() && f.cutOff(awayShort) == nil
}

// cutOff tells the devices whose part of the log has been away for so long; nil
// if there are none.
func (f *flow) cutOff(after time.Duration) func(device string) bool {
	shards := f.tail.Away(after)
	if len(shards) == 0 {
		return nil
	}
	away := make([]bool, f.log.Shards())
	for _, s := range shards {
		away[s] = true
	}
	return func(device string) bool { return away[event.Shard(device, len(away))] }
}

// admit lets a device in if there is a place for it, and if the gateway stays.
func (f *flow) admit(r *http.Request, p door.Pass) door.No {
	if retry, leaving := f.out.drain.Refuse(); leaving {
		return door.No{Why: door.RefusedDraining, Retry: retry}
	}
	v := server.VisitOf(r)
	if v == nil {
		return door.No{}
	}
	why, retry := v.Admit(f.returns(p))
	if why == "" {
		return door.No{}
	}
	return f.levers.blame(door.No{Why: door.Refusal(why), Retry: retry})
}

// way is a route to the handlers of the drain.
func (g *Gateway) way(method string, serve func(*drain.Handlers, http.ResponseWriter, *http.Request)) server.Route {
	return server.Route{Method: method, Path: drain.Path, Handler: g.admin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(g.out.handlers, w, r)
	}))}
}
