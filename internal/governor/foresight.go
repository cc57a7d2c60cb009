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
		s.rising, s.since, s.base = true, s.samples[0].at, s.samples[0].value
		if s.risen && now-s.rose < s.settles() {
			s.since = min(s.since, s.rose)
		}
	}
}

// foresee says where a signal that remembers will come to by what is let in now, and
// which part of that may come if it is to stay under a bound. What comes in stays for
// so long: at its highest the signal is when what began the rise is about to go out,
// or, if ever more comes in, once all that it holds has come at the present rate.
// What forgets within Brake shows soon enough what comes.
func (s *signal) foresee(now time.Duration, slope, bound float64, p *Settings) (peak, share float64, known bool) {
	all := s.settles()
	if !s.rising || all < time.Duration(p.Brake) || slope <= 0 {
		return 0, 0, false
	}
	more, whole := slope*max(all-(now-s.since), all/20).Seconds(), slope*all.Seconds()
	share = min((bound-s.last.Value)/more, (bound-s.base)/whole)
	return max(s.last.Value+more, s.base+whole), share, true
}

// foresees reports whether the signal will be over its threshold for certain. From a
// quarter of it on: until then anybody may be as quick as he likes.
func (s *signal) foresees(now time.Duration, g SignalSettings, p *Settings) bool {
	peak, share, known := s.foresee(now, s.least, g.Threshold, p)
	bound := g.Threshold * (5 - p.Good) / 4 // a little over isn't certain
	if !known || s.last.Value < g.Threshold/4 || share <= 0 || peak <= bound {
		return false
	}
	// Just beyond it little is too much, however short the time that is left.
	_, s.fits, _ = s.foresee(now, s.least, max(g.Threshold, 2*bound-peak), p)
	s.early, s.share, s.peak = true, share, peak
	return true
}

// urgency says how fast the lever has to fall so that what comes is little enough
// before the threshold is reached.
func (s *signal) urgency(g SignalSettings, p *Settings) Verdict {
	left := (g.Threshold - s.last.Value) / s.least
	takes := func(step float64, each time.Duration) float64 {
		return math.Log(s.share) / math.Log(1-step) * each.Seconds()
	}
	switch { // twice: a step is seen only after a while, and what is foreseen is what is certain
	// Hardly too much is no reason for a fast fall.
	case s.peak > g.Threshold*(3-p.Good)/2 && left < 2*takes(p.FastStep, max(time.Duration(p.FastPeriod), s.span())):
		return AtWall
	case left < 2*takes(p.Step, time.Duration(p.Period)):
		return Over
	}
	return Fair
}

// needs is how large a step has to be, and at most as large as it may be. Of what fits
// a part is left, if more may come before the next step.
func (s *signal) needs(most, part float64) float64 {
	if s.early {
		return min(most, 1-s.fits*part)
	}
	return most
}
