package governor

import (
	"math"
	"time"
)

// climb notes since when the signal has been rising. That it isn't known for a
// moment, because a lever has moved, doesn't end it.
func (s *signal) climb(now time.Duration) {
	switch {
	case s.trended && s.slope <= 0:
		s.rising = false
	case s.least > 0 && !s.rising:
		s.rising, s.since = true, s.samples[0].at
		if s.risen && now-s.rose < s.settles() {
			s.since = min(s.since, s.rose)
		}
	}
}

// foresees reports whether a signal that remembers will be over its threshold by what
// is let in now: what comes in stays for so long, and nothing of it has gone out
// before it has risen for that time. From a quarter on: until then anybody may be as
// quick as he likes.
func (s *signal) foresees(now time.Duration, g SignalSettings, p *Settings) bool {
	rest, known := s.rest(now, p)
	room := g.Threshold - s.last.Value
	if !known || s.least <= 0 || s.last.Value < g.Threshold/4 || room <= 0 {
		return false
	}
	more := s.least * rest.Seconds()
	if s.last.Value+more <= g.Threshold*(5-p.Good)/4 { // a little over isn't certain
		return false
	}
	s.early, s.share = true, room/more
	return true
}

// rest is for how long a signal that remembers goes on rising as it does now. What
// forgets within Brake shows soon enough what comes.
func (s *signal) rest(now time.Duration, p *Settings) (rest time.Duration, known bool) {
	all := s.settles()
	return max(all-(now-s.since), all/20), s.rising && all >= time.Duration(p.Brake)
}

// urgency says how fast the lever has to fall so that what comes is little enough
// before the threshold is reached.
func (s *signal) urgency(g SignalSettings, p *Settings) Verdict {
	left := (g.Threshold - s.last.Value) / s.least
	slowly := math.Log(s.share) / math.Log(1-p.Step) * p.Period.seconds()
	switch {
	case left < slowly:
		return AtWall
	case left < slowly+p.Brake.seconds():
		return Over
	}
	return Fair
}

// needs is how large a step has to be, and at most as large as it may be.
func (s *signal) needs(most float64) float64 {
	if s.early {
		return min(most, 1-s.share)
	}
	return most
}
