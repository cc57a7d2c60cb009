package drain

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"downlink/internal/backoff"
)

// Terms are what the arithmetic of a drain starts from; see Options.
type Terms struct {
	Wait     time.Duration
	Rate     int
	Deadline time.Duration
	Last     time.Duration
}

// forEver is the time left of a drain without a deadline.
const forEver = time.Duration(math.MaxInt64)

func (o *Options) terms() Terms {
	return Terms{Wait: o.Wait, Rate: o.Rate(), Deadline: o.Deadline, Last: o.Last}
}

// A Plan is what a drain of so many connections takes, at most: devices that
// leave by themselves make it shorter.
type Plan struct {
	Connections int
	Wait        time.Duration
	Tell        time.Duration
	Close       time.Duration
	Last        time.Duration
	Pace        float64       // connections closed a second; 0: all at once
	Back        time.Duration // until the last device is told to have come back, from the beginning; without its retry
}

// Plan works out what a drain takes.
func (t Terms) Plan(n int) Plan {
	p := Plan{Connections: n, Wait: t.Wait, Last: t.Last}
	if n > 0 && t.Rate > 0 {
		p.Tell = time.Duration(n)*(time.Second/tellRate) + settle
	}
	left := forEver
	if t.Deadline > 0 {
		left = max(t.Deadline-t.Wait-p.Tell-t.Last, 0)
	}
	if p.Pace = t.pace(n, left); p.Pace > 0 {
		p.Close = seconds(float64(n) / p.Pace)
		p.Back = p.Wait + p.Tell + min(seconds(float64(n)/float64(t.Rate)), p.Close+farthest)
	}
	return p
}

// pace is how many connections a second are to be closed so that n are within
// the time that is left: the rate, or more if need be. 0: all at once.
func (t Terms) pace(n int, left time.Duration) float64 {
	switch {
	case t.Rate <= 0 || left <= 0:
		return 0
	case left > forEver/2:
		return float64(t.Rate)
	}
	return max(float64(t.Rate), float64(n)/left.Seconds())
}

// AtRate is how many connections can leave at the rate before the deadline;
// -1: any number.
func (t Terms) AtRate() int {
	if t.Rate <= 0 || t.Deadline <= 0 {
		return -1
	}
	left := t.Deadline - t.Wait - t.Last - settle
	return int(max(left.Seconds(), 0) / (1/float64(t.Rate) + 1./tellRate))
}

// Total is how long a plan takes.
func (p Plan) Total() time.Duration { return p.Wait + p.Left() }

// Left is how long it takes after the waiting.
func (p Plan) Left() time.Duration { return p.Tell + p.Close + p.Last }

// String is the arithmetic, for whoever sets the time that the process gets to
// end.
func (t Terms) String() string {
	most := t.Wait + t.Last
	switch {
	case t.Rate <= 0:
		return fmt.Sprintf("a drain takes %s at most: %s until nothing in front sends devices here (drain_wait), and %s for what is left at the end (shutdown_timeout); all connections are closed at once, because drain_rate is 0", most, t.Wait, t.Last)
	case t.Deadline <= 0:
		return fmt.Sprintf("a drain takes %s, and a second for each %d connections (drain_rate)", most, t.Rate)
	}
	return fmt.Sprintf("a drain takes %s at most (drain_deadline): %s until nothing in front sends devices here (drain_wait), %s for what is left at the end (shutdown_timeout), and %s between them, in which %d connections can be closed at %d a second (drain_rate); more are closed faster, and told to come back at that rate. Give the process %s to end before it is killed",
		t.Deadline, t.Wait, t.Last, t.Deadline-most, t.AtRate(), t.Rate, t.Deadline+spare)
}

// LogValue is the same in a few words: whoever starts a gateway for the first time
// has to find his way past it.
func (t Terms) LogValue() slog.Value {
	if t.Deadline <= 0 {
		return slog.GroupValue(slog.Int("per_second", t.Rate))
	}
	return slog.GroupValue(slog.Duration("at_most", t.Deadline), slog.Duration("kill_after", t.Deadline+spare),
		slog.Int("per_second", t.Rate), slog.Int("connections", t.AtRate()))
}

// spare is what a process needs to end, beside all that it waits for.
const spare = 5 * time.Second

// farthest is the longest time that anybody is told to stay away, but for the
// jitter. What had to come later is spread over the second half of it.
const farthest = 5 * time.Minute

// comeBack is when the device whose turn is the i-th is to come back, so long
// after the first turn: at its turn, and not before the time that any device
// waits. 0: there are no turns.
func (o *Options) comeBack(i int, after time.Duration) time.Duration {
	rate := o.Rate()
	if rate <= 0 {
		return 0
	}
	return away(max(seconds(float64(i)/float64(rate))-after, 0), o.Retry)
}

// away is for how long a device is told to stay away that has its turn then, at
// some moment of the time that any device waits.
func away(turn, retry time.Duration) time.Duration {
	if turn > farthest {
		turn = farthest/2 + rand.N(farthest/2)
	}
	return turn + backoff.Jitter(retry, 0.5)
}

// A line is devices that are to come back one after the other. As time passes it
// gets shorter by itself.
type line struct{ end time.Time }

// join gives one more device its turn: after which time, if so many come back a
// second.
func (l *line) join(perSecond float64) time.Duration {
	now := time.Now()
	if l.end.Before(now) {
		l.end = now
	}
	wait := l.end.Sub(now)
	if wait <= farthest {
		l.end = l.end.Add(seconds(1 / perSecond))
	}
	return wait
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), 1<<62))
}
