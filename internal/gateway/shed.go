package gateway

import (
	"context"
	"time"

	"downlink/internal/drain"
	"downlink/internal/governor"
	"downlink/internal/rebalance"
)

// shed is the part of the flow that lets streams go which the governor doesn't
// allow any more.
func (f *flow) shed(o Options, m instruments) func(context.Context) error {
	return func(ctx context.Context) error {
		return drain.Shed(ctx, drain.ShedOptions{
			Surplus: f.surplus, Busy: f.leaving, Rate: o.Limits.Value(shedRate), After: o.ShedAfter, Back: f.places, Retry: o.Retry,
			Roster: f.out.roster, Ages: f.out.ages,
			Metrics: m.drain, Logger: o.Logger.With("part", "drain"),
		})
	}
}

// surplus is how many streams there are above what the governor allows, and by
// which signal. Those count as allowed whom the reserve would let in again, or they
// would come and go. There is none once the signal isn't over its threshold any
// more, goes back by itself, or isn't known: then the ratio doesn't fall either.
func (f *flow) surplus() (n int, why string) {
	p := f.levers.admission.position()
	if p.Ratio >= 1 || !f.pressed() {
		return 0, ""
	}
	allowed := f.levers.limits.Value(maxConnections)() + f.levers.reserve()
	return max(f.out.roster.Living()-allowed, 0), p.Why
}

// pressed reports whether admission would fall now, if it were time.
func (f *flow) pressed() bool {
	for _, l := range f.governor.State().Levers {
		if l.Name == governor.Admission {
			return l.Verdict == governor.Over || l.Verdict == governor.AtWall
		}
	}
	return false
}

// leaving reports whether streams are let go for another reason than the governor.
func (f *flow) leaving() bool {
	return !f.out.drain.Ready() || f.out.even.Status().State == rebalance.Shedding
}

// places says when streams that are let go may have a place again: at once at the
// other gateways, if they have room for them; otherwise when the ratio has risen,
// which takes it some time, and as fast as it rises.
func (f *flow) places(n int) (first time.Duration, perSecond float64) {
	if f.out.even.Elsewhere() >= n {
		return 0, 0
	}
	s := f.governor.Settings()
	step := min(s.RiseStep, s.Step*f.levers.admission.position().Ratio)
	each := f.levers.admission.whole() * step / time.Duration(s.RisePeriod).Seconds()
	return time.Duration(s.Calm), max(each, 1)
}
