package rebalance

import (
	"time"

	"downlink/internal/session"
)

// A course is one surplus that is being let go.
type course struct {
	began  time.Time
	old    time.Time // streams from before may be ended, so none that came since is
	owed   float64
	last   time.Time // when owed was counted
	gone   int
	proven bool // that it helps
}

// may reports whether a stream may be ended.
func (c *course) may(s *session.Session) bool { return s.Since().Before(c.old) }

// due is how many streams are due at a rate. What couldn't be let go in its time
// isn't made good for: that would be a burst.
func (c *course) due(perSecond float64, now time.Time) int {
	c.owed = min(c.owed, 1) + perSecond*min(now.Sub(c.last), round).Seconds()
	c.last = now
	return int(c.owed)
}

const (
	// sample is how many streams are let go at first, to see whether that helps. More
	// than three in four of them back here is more than chance: even with two gateways
	// it would happen once in 6,000 times.
	sample = 50
	// pause is how long nothing is tried again if it didn't help.
	pause = time.Hour
	// onTheWay is how long a device needs, beside its retry, to be back.
	onTheWay = time.Second
)

// A trial is whether devices that are let go come straight back. It outlives a
// course: few devices would be let go again and again.
type trial struct {
	devices map[string]bool
	let     int // a device may have been let go twice
	began   time.Time
	last    time.Time
}

// note notes that a device is let go.
func (t *trial) note(device string, now time.Time) {
	if t.let == 0 {
		t.devices, t.began = make(map[string]bool, sample), now
	}
	t.devices[device], t.last = true, now
	t.let++
}

// wants is how many are still to be let go.
func (t *trial) wants() int { return sample - t.let }

// over reports whether they have had the time to be back.
func (t *trial) over(now time.Time, retry time.Duration) bool {
	return t.let >= sample && now.Sub(t.last) >= round+3*retry+onTheWay
}

// back counts those that have come here since.
func (t *trial) back(r *session.Roster) int {
	here := make(map[string]bool)
	r.Some(1, func(s *session.Session) bool {
		if t.devices[s.Device()] && s.Since().After(t.began) {
			here[s.Device()] = true
		}
		return false
	})
	return len(here)
}
