package gateway

import (
	"fmt"
	"net/http"

	"downlink/internal/door"
	"downlink/internal/limits"
	"downlink/internal/lobby"
	"downlink/internal/peer"
	"downlink/internal/problem"
	"downlink/internal/server"
)

// Names of the limits of who may come in.
const (
	maxConnections = "max_connections"
	maxHandshakes  = "max_handshakes"
	addressStreams = "connections_per_address"
	acceptRate     = "accept_rate"
	addressRate    = "accept_rate_per_address"
	requestHeader  = "max_header_bytes"
	http2Streams   = "max_concurrent_streams"
)

// EntranceOptions say who may come in, beside the limits.
type EntranceOptions struct {
	// TrustedProxies are the load balancers in front, whose word counts for where
	// a request comes from.
	TrustedProxies peer.Proxies

	held int // refusals held back at a time; set by New
}

// bindEntrance joins the limits with the descriptors that there are.
func (g *Gateway) bindEntrance(devices, backend share) {
	all := g.opts.Limits
	// Fewer than there is room for: who is held back must not be cut.
	g.opts.Entrance.held = max(devices.waiting/2, 1)
	all.Bind(limits.RefusalsHeld, func(fixed int64) (int64, string) {
		if held := int64(g.opts.Entrance.held); held < fixed {
			return held, fmt.Sprintf("more don't fit into the %d file descriptors of the process (ulimit -n)", devices.process)
		}
		return fixed, ""
	})
	all.Found(limits.BackendConnections, int64(backend.streams))
	all.Bind(maxConnections, g.levers.admission.bound(fitting(devices.streams, devices)))
	all.Bind(acceptRate, g.levers.pace)
	all.Bind(publishRate, g.levers.publish.bound(asConfigured))
	all.Bind(maxHandshakes, fitting(devices.waiting, devices))
	all.Uses(maxConnections, func() float64 { _, streams := g.device.Count(); return float64(streams) })
	all.Uses(maxHandshakes, func() float64 { waiting, _ := g.device.Count(); return float64(waiting) })
	all.Uses(limits.BackendConnections, func() float64 { _, streams := g.backend.Count(); return float64(streams) })
}

// fitting bounds a limit by the descriptors of the devices' port.
func fitting(fit int, s share) limits.Bound {
	return func(configured int64) (int64, string) {
		switch {
		case configured == 0:
			return int64(fit), fmt.Sprintf("not configured, so it is what the %d file descriptors of the process (ulimit -n) leave for it", s.process)
		case configured > int64(fit):
			return int64(fit), fmt.Sprintf("the process may have %d file descriptors (ulimit -n); docs/operate/listeners.md says how they are shared", s.process)
		}
		return configured, ""
	}
}

// deviceLobby counts who is in at the devices' port.
func (g *Gateway) deviceLobby() lobby.Options {
	value := g.opts.Limits.Value
	return lobby.Options{
		Waiting: value(maxHandshakes), Streams: value(maxConnections), StreamsPerAddress: value(addressStreams),
		Rate: value(acceptRate), RatePerAddress: value(addressRate),
		Reserve: g.levers.reserve, RateReserve: g.levers.rateReserve,
		Proxies: g.opts.Entrance.TrustedProxies, Retry: g.opts.Retry, Metrics: g.metrics.lobby.Of(deviceListener),
	}
}

// backendLobby counts publishers' connections.
func (g *base) backendLobby(s share) lobby.Options {
	return lobby.Options{
		Waiting: limits.Always(s.waiting), Streams: g.opts.Limits.Value(limits.BackendConnections),
		Keep: true, Retry: g.opts.Retry, Metrics: g.metrics.lobby.Of(backendListener),
	}
}

// approach asks the devices' listener whether an address may ask for a place, in
// the words of the door (exits.admit asks for the place).
func approach(r *http.Request) door.No {
	v := server.VisitOf(r)
	if v == nil {
		return door.No{}
	}
	why, retry := v.Knock()
	return door.No{Why: door.Refusal(why), Retry: retry}
}

// stay lets a publisher's connection stay until it is closed. The error is a
// *problem.Document, and the answer.
func stay(r *http.Request) error {
	if v := server.VisitOf(r); v != nil {
		if why, _ := v.Admit(false); why != "" {
			return problem.New(problem.BackendFull, "no connection more can be held: "+string(why))
		}
	}
	return nil
}
