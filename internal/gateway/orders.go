package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/control"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
	"downlink/internal/revoked"
	"downlink/internal/server"
	"downlink/internal/session"
	"downlink/internal/shard"
)

// orders obeys what the log says about devices (tail.Orders).
type orders struct {
	shards  *shard.Set
	revoked *revoked.Set
}

// Order ends the streams of a device, or has the lists read: of whoever is
// revoked they tell, not the order, which may be an old one.
func (o orders) Order(_ int, order eventlog.Control) {
	if order.Kind != eventlog.Disconnect {
		o.revoked.Changed()
		return
	}
	retry := func() time.Duration { return backoff.Jitter(order.Retry, 0.5) }
	session.EndDevice(o.shards.Of(order.Device), order.Device, session.Disconnected, retry)
}

// Doubt has the lists read.
func (o orders) Doubt(int) { o.revoked.Changed() }

// openLog opens the log, and reads from it who must not be served.
func (g *base) openLog(ctx context.Context) (eventlog.Log, *revoked.Set, error) {
	log, err := openLog(ctx, g.opts, g.metrics)
	if err != nil {
		return nil, nil, err
	}
	lists := revoked.New(log, revoked.Options{
		Shards: log.Shards(), Cut: g.cut,
		Metrics: g.metrics.revoked, Logger: g.opts.Logger.With("part", "revoked"),
	})
	if err := lists.Load(ctx); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return log, lists, nil
}

// cut ends the streams of a device that was revoked. There are none before the
// flow has begun.
func (g *base) cut(device string) {
	if f := g.flow.Load(); f != nil {
		session.EndDevice(f.shards.Of(device), device, session.Revoked, nil)
	}
}

// order is a route to the handler of orders.
func (g *base) order(method, path string, serve func(*control.Handler, http.ResponseWriter, *http.Request)) server.Route {
	return server.Route{Method: method, Path: path, Handler: g.admin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := g.flow.Load()
		if f == nil {
			problem.Write(w, problem.New(problem.LogUnavailable, "the gateway has not reached its log since it started"))
			return
		}
		serve(f.control, w, r)
	}))}
}
