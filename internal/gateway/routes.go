package gateway

import (
	"net/http"

	"downlink/internal/control"
	"downlink/internal/drain"
	"downlink/internal/explain"
	"downlink/internal/limits"
	"downlink/internal/metrics"
	"downlink/internal/openapi"
	"downlink/internal/poll"
	"downlink/internal/publish"
	"downlink/internal/server"
	"downlink/internal/sse"
)

// routes are what the back end's port serves. Everything under /v1/ but the
// description of it is for those only whom it lets pass.
func (g *Gateway) routes() []server.Route {
	return append(g.governorRoutes(), []server.Route{
		{Method: http.MethodGet, Path: explain.Path, Handler: g.admin(http.HandlerFunc(g.explain))},
		g.order(http.MethodPost, control.DisconnectPath, (*control.Handler).Disconnect),
		g.order(http.MethodPost, control.RevokePath, (*control.Handler).Revoke),
		g.order(http.MethodDelete, control.RevokePath, (*control.Handler).Restore),
		g.order(http.MethodGet, control.RevokedPath, (*control.Handler).Revoked),
		g.way(http.MethodGet, (*drain.Handlers).Show),
		g.way(http.MethodPost, (*drain.Handlers).Begin),
		g.way(http.MethodDelete, (*drain.Handlers).Abort),
		g.issue(),
		{Path: publish.Path, Handler: http.HandlerFunc(g.publish)},
		{Method: http.MethodGet, Path: openapi.Path, Handler: openapi.Handler()},
		{Method: http.MethodGet, Path: limits.Path, Handler: g.admin(limits.Show(g.opts.Limits))},
		{Method: http.MethodPatch, Path: limits.Path, Handler: g.admin(limits.Apply(g.opts.Limits, g.opts.Logger.With("part", "limits")))},
		{Method: http.MethodGet, Path: "/metrics", Handler: metrics.Handler(g.registry, g.opts.Logger)},
	}...)
}

// deviceRoutes are what the devices' port serves beside health.
func (g *Gateway) deviceRoutes() []server.Route {
	return []server.Route{
		{Path: sse.Path, Handler: g.forPages(g.events)},
		{Path: poll.Path, Handler: g.forPages(g.polls)},
	}
}

// forPages is h for programs and for those pages that may.
func (g *Gateway) forPages(h http.HandlerFunc) http.Handler {
	return g.identity.pages.origins.Wrap(h, func(r *http.Request) {
		if f := g.flow.Load(); f != nil {
			f.noteOrigin(r)
		}
	})
}

// admin is h for those who may do everything.
func (g *base) admin(h http.Handler) http.Handler { return g.identity.callers.gate.Admin(h) }

// asks is h for those who may ask the governor.
func (g *base) asks(h http.Handler) http.Handler { return g.identity.callers.gate.Governor(h) }
