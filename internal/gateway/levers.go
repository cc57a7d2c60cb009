package gateway

import (
	"fmt"
	"sync/atomic"
	"time"

	"downlink/internal/door"
	"downlink/internal/governor"
	"downlink/internal/limits"
	"downlink/internal/lobby"
	"downlink/internal/publish"
)

// levers are what the governor moves of a gateway, as those read it who enforce
// it: bounds of limits, so that what is shown is what counts.
type levers struct {
	// Set at construction.
	limits  *limits.Registry
	metrics *governor.Metrics

	admission, publish throttle
	meter              meter
}

func newLevers(all *limits.Registry, m *governor.Metrics) *levers {
	l := &levers{limits: all, metrics: m}
	l.publish.reference = l.meter.reference
	return l
}

// A throttle is where one lever stands. Safe for concurrent use.
type throttle struct {
	at   atomic.Pointer[governor.Position] // nil: nobody has moved it
	full atomic.Int64                      // what ratio 1 allows; 0: it isn't limited
	// reference is what ratio 1 is taken for if nothing is limited there. Nil: nothing.
	reference func() float64
}

// position is where it stands.
func (t *throttle) position() governor.Position {
	if p := t.at.Load(); p != nil {
		return *p
	}
	return governor.Position{Ratio: 1}
}

// whole is what ratio 1 allows, or is taken for.
func (t *throttle) whole() float64 {
	if full := t.full.Load(); full > 0 || t.reference == nil {
		return float64(full)
	}
	return t.reference()
}

// bound lowers a limit to where the lever stands; inner bounds it before.
func (t *throttle) bound(inner limits.Bound) limits.Bound {
	return func(configured int64) (int64, string) {
		value, why := inner(configured)
		t.full.Store(value)
		p := t.position()
		if p.Ratio >= 1 {
			return value, why
		}
		lowered := max(int64(t.whole()*p.Ratio), 1)
		reason := fmt.Sprintf("the governor holds it at %.1f %% of %.0f: %s", p.Ratio*100, t.whole(), p.Why)
		if value == 0 {
			reason = fmt.Sprintf("the governor holds it at %.1f %% of the %.0f that there were lately: %s", p.Ratio*100, t.whole(), p.Why)
		}
		if why != "" {
			reason += "; " + why
		}
		return lowered, reason
	}
}

// asConfigured is the bound that is none.
func asConfigured(configured int64) (int64, string) { return configured, "" }

// pace bounds accept_rate while admission is lowered: what is made room for isn't
// filled at once. Without a rate, as many a second as would fill it in a minute.
func (l *levers) pace(configured int64) (int64, string) {
	p := l.admission.position()
	if p.Ratio >= 1 {
		return configured, ""
	}
	from := configured
	if from == 0 {
		from = max(l.admission.full.Load()/crowdReturns, 1)
	}
	return max(int64(float64(from)*p.Ratio), 1), fmt.Sprintf("the governor holds it at %.1f %% of %d: %s", p.Ratio*100, from, p.Why)
}

// crowdReturns is in how many seconds all that there is room for may come.
const crowdReturns = 60

// reserve is how many streams more there may be of devices that come back, while
// the governor holds others out; never more than without it.
func (l *levers) reserve() int {
	if l.admission.position().Ratio >= 1 {
		return 0
	}
	left := int64(l.limits.Value(maxConnections)())
	extra := left * int64(l.limits.Value(governorReserve)()) / 100
	return int(max(min(extra, l.admission.full.Load()-left), 0))
}

// rateReserve is how much of accept_rate is for such devices alone.
func (l *levers) rateReserve() int {
	if l.admission.position().Ratio >= 1 {
		return 0
	}
	return l.limits.Value(acceptRate)() * l.limits.Value(governorReserve)() / 100
}

// leversOf are the gateway's levers, of a flow.
func (g *Gateway) leversOf(f *flow) []governor.Lever {
	return g.levers.all(func() int { _, streams := g.device.Count(); return streams }, f.publish)
}

// A source counts the entries of publishers since the start.
type source interface {
	Stored() uint64
	Asked() uint64 // that were to be stored, whatever became of them
}

// all are the levers as the governor takes them. streams is how many there are.
func (l *levers) all(streams func() int, entries source) []governor.Lever {
	return []governor.Lever{
		{
			Name: governor.Admission, Unit: "connections", Floor: l.floor, Stays: true,
			Use: func() (float64, bool) {
				full := l.admission.whole()
				return float64(streams()) / full, full > 0
			},
			Set:     func(p governor.Position) { l.move(&l.admission, p, maxConnections, acceptRate) },
			Maximum: func() float64 { return float64(l.limits.Value(maxConnections)()) },
		},
		l.publishing(entries),
	}
}

// publishing is the lever of publishers.
func (l *levers) publishing(entries source) governor.Lever {
	return governor.Lever{
		Name: governor.Publish, Unit: "entries/s", Floor: l.floor,
		Use: func() (float64, bool) {
			open, reference := l.publish.position().Ratio >= 1, l.meter.reference()
			rate := l.meter.read(entries.Stored(), entries.Asked(), time.Now(), open)
			if !open && l.meter.reference() != reference { // a part of more is more
				l.limits.Settle(publishRate)
			}
			return rate / l.publish.whole(), true
		},
		Set:     func(p governor.Position) { l.move(&l.publish, p, publishRate) },
		Maximum: func() float64 { return float64(l.limits.Value(publishRate)()) },
	}
}

// floor is the ratio below which no lever falls.
func (l *levers) floor() float64 { return float64(l.limits.Value(governorFloor)()) / 100 }

func (l *levers) move(t *throttle, p governor.Position, names ...string) {
	t.at.Store(&p)
	for _, name := range names {
		l.limits.Settle(name)
	}
}

// blame says by which signal a device is refused, if it is the governor's doing.
func (l *levers) blame(no door.No) door.No {
	if no.Why != door.Refusal(lobby.Full) && no.Why != door.Refusal(lobby.TooFast) {
		return no
	}
	if p := l.admission.position(); p.Ratio < 1 {
		no.Signal, no.Detail = p.Signal, "the governor: "+p.Why
		l.metrics.Refused(governor.Admission, p.Signal)
	}
	return no
}

// because says the same to publishers.
func (l *levers) because() publish.Cause {
	p := l.publish.position()
	if p.Ratio >= 1 {
		return publish.Cause{}
	}
	l.metrics.Refused(governor.Publish, p.Signal)
	return publish.Cause{Signal: p.Signal, Detail: "the governor holds it at " + fmt.Sprintf("%.0f %%", p.Ratio*100) + ", because " + p.Why}
}
