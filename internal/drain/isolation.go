package drain

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"downlink/internal/ageing"
	"downlink/internal/session"
)

// IsolationOptions say when devices had better find another gateway.
type IsolationOptions struct {
	// After is how long the log may be away.
	After time.Duration
	// Cut reports of a device whether its part of the log has been away for so
	// long; nil: none has. It is asked once a second.
	Cut     func(after time.Duration) (isCut func(device string) bool)
	Rate    func() int // streams ended a second; 0: none
	Roster  *session.Roster
	Ages    *ageing.Book
	Metrics *Metrics
	Logger  *slog.Logger
}

// isolationTick is how often sessions are picked: each ends at a random moment
// until the next time.
const isolationTick = time.Second

// Isolate ends sessions slowly while the log is away, until ctx ends; then it
// returns nil. Nobody can tell "away for everyone" from "I am cut off", and in the
// second case another gateway serves them. A session that began less than After
// ago stays: if the log is away for everyone, a device moves once in that time at
// most.
func Isolate(ctx context.Context, o IsolationOptions) error {
	tick := time.NewTicker(isolationTick)
	defer tick.Stop()
	isolated, ended := false, 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		isCut := o.Cut(o.After)
		switch {
		case isCut != nil && !isolated:
			isolated = true
			o.Metrics.Isolated.Set(1)
			o.Logger.Warn("the log has been away for isolation_after: streams are ended slowly, so that devices find a gateway that reaches it",
				"isolation_after", o.After, "per_second", o.Rate())
		case isCut == nil && isolated:
			o.Metrics.Isolated.Set(0)
			o.Logger.Warn("the log is back: streams stay", "ended", ended)
			isolated, ended = false, 0
		}
		if isolated {
			ended += o.shed(isCut)
		}
	}
}

// shed ends as many sessions as are due in a tick, and says how many.
func (o *IsolationOptions) shed(isCut func(device string) bool) int {
	old := time.Now().Add(-o.After)
	some := o.Roster.Some(o.Rate(), func(s *session.Session) bool { return s.Since().Before(old) && isCut(s.Device()) })
	for _, s := range some {
		o.Ages.Enter(s, rand.N(isolationTick), session.Isolated, 0)
	}
	return len(some)
}
