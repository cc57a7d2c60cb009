package probes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"downlink/internal/governor"
	"downlink/internal/tail"
)

// A Tail tells how far the reader of each group is behind, as its watchdog saw it
// last. It doesn't block.
type Tail interface {
	Lags() []tail.Lag
}

// The names of what is read of the tail.
const (
	TailLagName   = "tail_lag"
	TailDelayName = "tail_delay"
)

// underWay is up to which delay entries aren't behind, but on their way: at 20,000 a
// second a healthy way of 50 ms has 1,000 of them at any moment.
const underWay = time.Second

// TailLag is how many entries of the log this gateway is behind with. Watch is how
// often the tail's watchdog looks.
func TailLag(t Tail, watch time.Duration) governor.Signal {
	s := own(TailLagName, func(context.Context) (governor.Reading, error) {
		b, err := sumUp(t.Lags(), watch)
		if err != nil {
			return governor.Reading{}, err
		}
		if b.least {
			b.missing = append(b.missing, "after a reset it isn't known yet how many entries lie ahead")
		}
		r := governor.Reading{Value: float64(b.entries), Partial: strings.Join(b.missing, "; ")}
		if b.moving > 0 {
			r.Detail = fmt.Sprintf("%d more are on their way, for less than %v", b.moving, underWay)
		}
		return r, nil
	})
	s.Unit = "entries"
	s.Help = "Entries that the log holds and this gateway's tail hasn't handed to its shards yet, of those groups of shards in which some have waited for a second. " +
		"The gateway is short of processor time, or the way to the log is narrow: let fewer devices in for each gateway, or run more of them."
	s.Threshold, s.Levers = 1000, []string{governor.Admission}
	return s
}

// TailDelay is for how long the one has waited that has waited longest.
func TailDelay(t Tail, watch time.Duration) governor.Signal {
	s := own(TailDelayName, func(context.Context) (governor.Reading, error) {
		b, err := sumUp(t.Lags(), watch)
		if err != nil {
			return governor.Reading{}, err
		}
		r := governor.Reading{Value: b.delay.Seconds(), Partial: strings.Join(b.missing, "; ")}
		if b.delay > 0 {
			r.Of = "shard " + strconv.Itoa(b.shard)
		}
		return r, nil
	})
	s.Unit = "seconds"
	s.Help = "For how long the log has held an entry that this gateway's tail hasn't handed over yet, of the shard where that is longest. " +
		"It is what every device waits for, and means what tail_lag means."
	s.Threshold, s.Levers = 5, []string{governor.Admission}
	return s
}

// behind is what the readers of all groups together are.
type behind struct {
	entries uint64 // of groups in which some have waited
	moving  uint64 // of the others
	least   bool   // there may be more entries
	delay   time.Duration
	shard   int // whose delay that is
	missing []string
}

// sumUp leaves out groups at which nobody has looked for a while: while the log
// is away, what was seen last says nothing of now.
func sumUp(lags []tail.Lag, watch time.Duration) (b behind, err error) {
	for _, l := range lags {
		switch age := elapsed(l.Looked, time.Now()); {
		case l.Looked.IsZero():
			b.missing = append(b.missing, fmt.Sprintf("the tail of group %d hasn't begun", l.Group))
			continue
		case age > 4*watch:
			b.missing = append(b.missing, fmt.Sprintf("the tail of group %d was compared with the log %v ago", l.Group, age.Round(time.Second)))
			continue
		}
		if l.Delay < underWay {
			b.moving += l.Entries
		} else {
			b.entries += l.Entries
		}
		b.least = b.least || l.Least
		if l.Delay > b.delay {
			b.delay, b.shard = l.Delay, l.Shard
		}
	}
	switch {
	case len(lags) == 0:
		return b, errors.New("the log hasn't been reached yet")
	case len(b.missing) == len(lags):
		return b, errors.New(strings.Join(b.missing, "; "))
	}
	return b, nil
}
