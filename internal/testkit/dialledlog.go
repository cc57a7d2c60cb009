package testkit

import (
	"fmt"
	"slices"
	"time"

	"downlink/internal/event"
)

// generation is what the call had at a moment.
func (c *Call) generation(at time.Time) uint64 {
	g := c.Generation
	for _, r := range c.Renewed {
		if !at.Before(r.At) {
			g = r.Generation
		}
	}
	return g
}

// A Pause is a time for which a member's process was stopped.
type Pause struct {
	Member   string
	From, To time.Time
}

// excuses reports whether something was sent late only because the process was
// stopped between asking for its lease and writing. Nobody can prevent that; it
// concerns what was there before, and comes at once when the process goes on. By
// then the device takes nothing from that connection.
func (p Pause) excuses(c *Call, s Sent, slack time.Duration) bool {
	id, err := event.ParseID(s.ID)
	return err == nil && c.Member == p.Member && id.Ms <= uint64(p.From.UnixMilli()) &&
		s.At.After(p.From) && s.At.Before(p.To.Add(slack))
}

// CallFaults holds what a device wrote down against the rule that no two owners
// send at once: an owner whose device has accepted a newer one sends it nothing
// more. What was on its way already may come within slack. The calls are in the
// order in which they came.
func CallFaults(calls []Call, slack time.Duration, pauses ...Pause) (faults []string) {
	var highest uint64
	for i := range calls {
		c := &calls[i]
		switch g := c.Generation; {
		case c.Refused && g >= highest:
			faults = append(faults, fmt.Sprintf("generation %d of %s was refused after %d", g, c.Member, highest))
		case !c.Refused && g < highest:
			faults = append(faults, fmt.Sprintf("generation %d of %s was accepted after %d", g, c.Member, highest))
		case !c.Refused:
			highest = max(highest, g)
		}
		for _, r := range c.Renewed {
			if r.Generation <= c.generation(r.At.Add(-1)) {
				faults = append(faults, fmt.Sprintf("%s went on under generation %d after %d", c.Member, r.Generation, c.generation(r.At.Add(-1))))
			}
			highest = max(highest, r.Generation)
		}
		for _, s := range c.Sent {
			newer := newerOwner(calls, i, s.At.Add(-slack))
			if newer != nil && !slices.ContainsFunc(pauses, func(p Pause) bool { return p.excuses(c, s, slack) }) {
				faults = append(faults, fmt.Sprintf("%s (generation %d) sent %s, %v after %s (generation %d) was accepted",
					c.Member, c.generation(s.At), s.ID, s.At.Sub(newer.Came).Round(time.Millisecond), newer.Member, newer.Generation))
			}
		}
	}
	return faults
}

// newerOwner is a call that was accepted before a moment, of a generation above
// the one that call i had then; or a WebSocket that took the place of another of
// the same generation.
func newerOwner(calls []Call, i int, at time.Time) *Call {
	c := &calls[i]
	for j := range calls {
		other := &calls[j]
		if j == i || other.Refused || other.Came.After(at) {
			continue
		}
		mine, theirs := c.generation(at), other.generation(at)
		if theirs > mine || theirs == mine && mine > 0 && j > i && !c.Post && !other.Post {
			return other
		}
	}
	return nil
}

// LongestWithout is the longest time within [from, to] for which a device had no
// open WebSocket that it had accepted.
func LongestWithout(calls []Call, from, to time.Time) (longest time.Duration) {
	covered := from
	for i := range calls {
		c := &calls[i]
		if c.Refused || c.Post {
			continue
		}
		if c.Came.After(covered) {
			longest = max(longest, minTime(c.Came, to).Sub(covered))
		}
		left := c.Left
		if left.IsZero() {
			left = to
		}
		if left.After(covered) && !c.Came.After(to) {
			covered = left
		}
	}
	return max(longest, to.Sub(covered))
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Redials is how many WebSockets a device accepted in (from, to].
func Redials(calls []Call, from, to time.Time) (n int) {
	for i := range calls {
		if c := &calls[i]; !c.Refused && !c.Post && c.Came.After(from) && !c.Came.After(to) {
			n++
		}
	}
	return n
}

// Moved is how many devices have another owner than before; who has none at one
// of the times counts, too.
func Moved(before, now []string) (n int) {
	for i := range before {
		if before[i] != now[i] {
			n++
		}
	}
	return n
}
