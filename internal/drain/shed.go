package drain

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"downlink/internal/ageing"
	"downlink/internal/session"
)

// ShedOptions say when more streams are here than may be, and what becomes of
// them. Its functions are asked once a second.
type ShedOptions struct {
	// Surplus is how many streams are too many, and by what, in words; 0: none.
	Surplus func() (n int, why string)
	// Busy reports whether streams are let go for another reason: then none is for
	// this one.
	Busy func() bool
	// Rate is how many are let go a second; 0: none, and only the metric says how
	// many would be.
	Rate func() int
	// After is how long a stream must have been here: so a device that was let go
	// isn't again as soon as it is back.
	After time.Duration
	// Back says when there may be a place again for those of so many that are let
	// go: for the first in so long, and then for so many a second. 0 a second: there
	// are places.
	Back func(n int) (first time.Duration, perSecond float64)
	// Retry is when a device comes back that was ended, jittered by half.
	Retry   time.Duration
	Roster  *session.Roster
	Ages    *ageing.Book
	Metrics *Metrics
	Logger  *slog.Logger
}

// shedTick is how often streams are picked: each ends at a random moment until the
// next time.
const shedTick = time.Second

// Shed lets streams go, at a pace, while there are too many, until ctx ends; then
// it returns nil. Any that has been here for long enough may be picked: those who
// came last would be the same ones each time.
func Shed(ctx context.Context, o ShedOptions) error {
	tick := time.NewTicker(shedTick)
	defer tick.Stop()
	s := shedding{ShedOptions: o, going: make(map[*session.Session]struct{})}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.round()
		}
	}
}

// A shedding is what Shed knows from one round to the next.
type shedding struct {
	ShedOptions
	on   bool
	gone int // since it is on
	line line
	// going are those whose date hasn't come, or not been kept yet: they count as
	// gone, or others would go in their place while the gateway is too busy to end
	// them.
	going map[*session.Session]struct{}
}

// round lets go what is due until the next one.
func (s *shedding) round() {
	maps.DeleteFunc(s.going, func(x *session.Session, _ struct{}) bool { return x.Ended() != "" })
	n, why := s.Surplus()
	s.Metrics.Surplus.Set(float64(n))
	rate := s.Rate()
	if n <= 0 || rate <= 0 || s.Busy() {
		s.finish()
		return
	}
	old := time.Now().Add(-s.After)
	some := s.Roster.Some(min(n-len(s.going), rate), func(x *session.Session) bool {
		_, going := s.going[x]
		return !going && x.Since().Before(old)
	})
	if len(some) > 0 && !s.on {
		s.on = true
		s.Logger.Warn("the governor allows fewer streams than there are: the others are let go, and told when to come back", "surplus", n, "per_second", rate, "why", why)
	}
	first, perSecond := s.Back(n)
	for _, x := range some {
		retry := time.Duration(0) // as any that ends
		if perSecond > 0 {
			retry = away(first+s.line.join(perSecond), s.Retry)
		}
		s.Ages.Enter(x, rand.N(shedTick*9/10), session.Shed, retry)
		s.going[x] = struct{}{}
	}
	s.gone += len(some)
}

// finish says that no more are let go, if some were.
func (s *shedding) finish() {
	if s.on {
		s.Logger.Info("no more streams are let go for the governor's sake", "let_go", s.gone)
	}
	s.on, s.gone = false, 0
}
