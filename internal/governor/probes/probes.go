// Package probes owns the questions by which a governor learns how its gateway
// and its log are doing, and how an answer is to be judged before anybody has
// configured that. It doesn't decide what follows. Its invariant: what wasn't
// answered, or not credibly, is an error, and never a zero or the value of before.
package probes

import (
	"context"
	"fmt"
	"time"

	"downlink/internal/governor"
)

// A probe is a question with its name (governor.Probe).
type probe struct {
	name string
	read func(context.Context) (governor.Reading, error)
}

// Name implements governor.Probe.
func (p probe) Name() string { return p.name }

// Read implements governor.Probe.
func (p probe) Read(ctx context.Context) (governor.Reading, error) { return p.read(ctx) }

// The rhythm of what this process knows itself: asking costs microseconds. Fresh
// is long enough for a process that is short of processor time, in which readings
// are late and count most.
const (
	ownPeriod  = 2 * time.Second
	ownTimeout = time.Second
	ownFresh   = 10 * time.Second
)

// own is a signal of this process.
func own(name string, read func(context.Context) (governor.Reading, error)) governor.Signal {
	return governor.Signal{
		Probe:  probe{name, read},
		Period: ownPeriod, Timeout: ownTimeout, Fresh: ownFresh,
	}
}

// size writes a number of bytes for people.
func size(bytes uint64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 10<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 10<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// elapsed is the larger of what the monotonic and the wall clock say has passed
// between two moments: the monotonic one stands still while the machine sleeps,
// and a rate over that time would be none.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
