package gateway

import (
	"downlink/internal/dial"
	"downlink/internal/governor"
)

// eased is the limit that admission lowers in a dialler: how fast WebSockets are
// dialled, or how many POSTs there are at a time. Never which devices are served:
// there is nobody else who may, so whoever isn't let in here is let in nowhere.
func (g *Dialler) eased() (name, unit string) {
	if g.dial.Transport == dial.WebSocket {
		return dialRate, "dials/s"
	}
	return postsInFlight, "posts"
}

// bindLevers joins what the governor moves with the limits; with owner none there
// is no flow, and no governor.
func (g *Dialler) bindLevers() {
	if g.dial.Owner == Nobody {
		return
	}
	name, _ := g.eased()
	g.opts.Limits.Bind(name, g.levers.admission.bound(asConfigured))
	g.opts.Limits.Bind(publishRate, g.levers.publish.bound(asConfigured))
}

// leversOf are a dialler's levers, of a flow.
func (g *Dialler) leversOf(f *flow) []governor.Lever {
	name, unit := g.eased()
	admission := governor.Lever{
		// It has no use that a fall could be counted from: as soon as nobody is to be
		// dialled, that would be none.
		Name: governor.Admission, Unit: unit, Floor: g.levers.floor,
		Set:     func(p governor.Position) { g.levers.move(&g.levers.admission, p, name) },
		Maximum: func() float64 { return float64(g.opts.Limits.Value(name)()) },
	}
	return []governor.Lever{admission, g.levers.publishing(f.publish)}
}
