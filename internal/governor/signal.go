package governor

import (
	"fmt"
	"math"
	"time"
)

// A sample is one value of a signal. Times are counted on this process's own
// clock, which no other needs to know.
type sample struct {
	at    time.Duration
	value float64
}

// A signal is what the law knows of one.
type signal struct {
	Signal
	name string

	read    bool // something was, ever
	last    Reading
	at      time.Duration // when it was read
	err     error         // of the last attempt
	samples []sample      // the latest, as far apart as a trend needs them
	moved   time.Duration // when one of its levers moved last
	touched bool          // one ever has
	rose    time.Duration // when one of them rose last
	risen   bool          // one ever has

	pasts  []past  // of each of the law's levers
	growth float64 // of what its levers let in, against what it shows

	verdict Verdict
	slope   float64 // a second
	least   float64 // what the slope is at least, whatever is noise; 0: that isn't known
	trended bool    // slope is known
	rising  bool    // it does for certain, since:
	since   time.Duration
	base    float64 // what it was then
	early   bool    // it is over by what will come, and isn't yet
	share   float64 // which part of what comes may come, if it is early
	fits    float64 // and to which part it is lowered
	peak    float64 // where it would come to
	drawn   bool    // slope is that of the samples and of the last move
	known   bool    // there have ever been values enough to judge by
	cold    bool    // it looks good, but a lever has just moved: its trend isn't known yet
}

// believe turns a reading that can't be true into an error.
func believe(r Reading, err error) (Reading, error) {
	if err == nil && r.None == "" && (math.IsNaN(r.Value) || math.IsInf(r.Value, 0) || r.Value < 0) {
		return r, fmt.Errorf("the probe said %v, which can't be", r.Value)
	}
	return r, err
}

// note takes the answer of a probe.
func (s *signal) note(now time.Duration, r Reading, err error) {
	if r, err = believe(r, err); err != nil {
		s.err = err
		return
	}
	if s.read && now-s.at > s.Fresh || r.None != "" {
		s.samples, s.rising = s.samples[:0], false // a trend over a gap says nothing
	}
	s.read, s.last, s.at, s.err, s.drawn = true, r, now, nil, false
	if r.None != "" {
		return
	}
	s.samples = append(s.samples, sample{now, r.Value})
	from := 0 // the last that is so old stays: readings come a little early or late
	for from+level < len(s.samples) && s.samples[from+1].at <= now-s.span() {
		from++
	}
	s.samples = s.samples[from:]
}

const (
	// level is how many values in a row count as one: a peak of fewer is none.
	level = 3
	// lasting is for how long a signal must have been over, or good, to be so.
	lasting = 10 * time.Second
)

// span is over how long a trend is seen: five readings, or a tenth of the time
// that the signal needs to show a step, of which a minute is enough.
func (s *signal) span() time.Duration {
	return max(lasting, 5*s.Period, 3*s.Ripple, min(s.settles()/10, time.Minute))
}

func (s *signal) settles() time.Duration {
	if s.Settles == nil {
		return 0
	}
	return s.Settles()
}

// fresh reports whether what was read counts.
func (s *signal) fresh(now time.Duration) bool { return s.read && now-s.at <= s.Fresh }

// bounds are the lowest and the highest of the last values, over some time but
// at least three; ok is false if there are too few.
func (s *signal) bounds(over time.Duration) (low, high float64, ok bool) {
	n := len(s.samples)
	if n < level {
		return 0, 0, false
	}
	from := n - level
	for from > 0 && s.samples[n-1].at-s.samples[from].at < over-s.Period {
		from--
	}
	low, high = math.Inf(1), 0
	for _, a := range s.samples[from:] {
		low, high = min(low, a.value), max(high, a.value)
	}
	return low, high, s.samples[n-1].at-s.samples[from].at >= over-s.Period
}

// trend is the slope of the line through the samples since a lever moved: what
// came before was another course. ok is false if there are too few.
func (s *signal) trend() (slope, doubt float64, ok bool) {
	all := s.samples
	for len(all) > 0 && s.touched && all[0].at < s.moved {
		all = all[1:]
	}
	if len(all) < level || all[len(all)-1].at-all[0].at < max(lasting-s.Period, 2*s.Ripple, 2*s.Period) {
		return 0, 0, false
	}
	var t, v float64
	for _, a := range all {
		t, v = t+a.at.Seconds(), v+a.value
	}
	n := float64(len(all))
	t, v = t/n, v/n
	var above, below float64
	for _, a := range all {
		d := a.at.Seconds() - t
		above, below = above+d*(a.value-v), below+d*d
	}
	if below == 0 {
		return 0, 0, false
	}
	slope = above / below
	if len(all) < proven {
		return slope, math.NaN(), true
	}
	var off float64 // the line, squared
	for _, a := range all {
		d := a.value - v - slope*(a.at.Seconds()-t)
		off += d * d
	}
	return slope, sure * math.Sqrt(off/(n-2)/below), true
}

const (
	// proven is how many values say how certain a trend is.
	proven = 5
	// sure is how many standard errors a trend may be less than it seems.
	sure = 2
)

// draw finds the trend, and how certain it is.
func (s *signal) draw(now time.Duration) {
	var doubt float64
	s.slope, doubt, s.trended = s.trend()
	s.least, s.drawn = s.slope-doubt, true
	if math.IsNaN(doubt) || !s.trended {
		s.least = 0
	}
	s.climb(now)
}

// judge says how the signal stands. What not everybody has answered to can be
// over a threshold, but proves nothing good.
func (s *signal) judge(now time.Duration, g SignalSettings, p *Settings) Verdict {
	v := s.look(now, g, p)
	if s.last.Partial != "" && (v == Good || v == Fair || v == Easing) {
		s.cold = false
		return Unknown
	}
	return v
}

func (s *signal) look(now time.Duration, g SignalSettings, p *Settings) Verdict {
	if !s.drawn {
		s.draw(now)
	}
	s.early = false
	last, _, _ := s.bounds(0)
	low, high, enough := s.bounds(lasting)
	s.known = s.known || enough
	s.cold = enough && !s.trended && high <= p.Good*g.Threshold
	switch {
	case g.Threshold <= 0:
		return Off
	case !s.fresh(now):
		return Unknown
	case s.last.None != "":
		return None
	case !enough:
		return s.begins(g, p)
	case !s.trended:
		return s.unseen(last, low, g)
	case low >= g.Threshold && (s.eases(low-g.Threshold, p) || s.mended(low, g)):
		return Easing
	case s.nearsWall(now, last, g, p):
		return AtWall
	case low >= g.Threshold:
		return Over
	case s.foresees(now, g, p):
		return s.urgency(g, p)
	case high+max(s.slope, 0)*s.pending(now).Seconds() <= p.Good*g.Threshold:
		return Good
	}
	return Fair
}

// begins judges while there are too few values. One that remembers isn't at its wall
// for a moment: a gateway that starts then doesn't wait for more of them, because
// what it lets in meanwhile stays for as long. Its other signals may be high because
// it has just begun.
func (s *signal) begins(g SignalSettings, p *Settings) Verdict {
	if !s.known && g.Wall > 0 && s.last.Value >= g.Wall && s.settles() >= time.Duration(p.Brake) {
		return AtWall
	}
	return Fair
}

// unseen judges while it isn't seen yet what the last move has done.
func (s *signal) unseen(last, low float64, g SignalSettings) Verdict {
	switch {
	case g.Wall > 0 && last >= g.Wall && s.pace() > 0: // whatever it has done, it isn't enough
		return AtWall
	case low >= g.Threshold:
		return Easing
	}
	return Fair
}

// eases reports whether what is too much goes away by itself, soon enough.
func (s *signal) eases(excess float64, p *Settings) bool {
	return s.slope < 0 && excess <= -s.slope*p.Recover.seconds()
}

// mended reports whether what is let in by now is little enough: what is too much
// was let in before, and has to go out of the window. Close to the wall that isn't
// waited for.
func (s *signal) mended(low float64, g SignalSettings) bool {
	return s.least <= 0 && low*s.growth <= g.Threshold && (g.Wall == 0 || low < (g.Threshold+g.Wall)/2)
}

// bears reports whether the signal would still be under its threshold if a lever
// let in more by a factor, once that is felt in full. Asked while the last move
// isn't yet: afterwards the signal itself says so.
func (s *signal) bears(now time.Duration, factor float64, g SignalSettings, p *Settings) bool {
	if g.Threshold <= 0 || s.last.None != "" || s.pending(now) == 0 {
		return true
	}
	_, high, _ := s.bounds(lasting)
	return high*s.growth*factor <= g.Threshold*(1+p.Good)/2
}

// nearsWall reports whether the wall was reached, or will be before a slow fall
// could help; from half way to it on, because a short rise from nothing is steep.
// What goes down doesn't reach it, and neither does what has jumped and stands.
func (s *signal) nearsWall(now time.Duration, low float64, g SignalSettings, p *Settings) bool {
	switch peak, _, known := s.foresee(now, s.slope, g.Wall, p); {
	case g.Wall == 0:
		return false
	case low >= g.Wall:
		return true
	case known && (s.last.Value < g.Threshold || peak < g.Wall): // what comes is foreseen, and how much of it fits
		return false
	}
	return low >= g.Wall/2 && g.Wall-low < min(s.slope, s.pace())*p.Brake.seconds()
}

// pace is the slope of the last values alone.
func (s *signal) pace() float64 {
	n := len(s.samples)
	if n < level {
		return 0
	}
	first, last := s.samples[n-level], s.samples[n-1]
	if last.at <= first.at {
		return 0
	}
	return (last.value - first.value) / (last.at - first.at).Seconds()
}

// pending is how long the last move of its levers will still be felt.
func (s *signal) pending(now time.Duration) time.Duration {
	if !s.touched {
		return 0
	}
	return max(s.settles()-(now-s.moved), 0)
}

// excess is how far a signal is, as a multiple of its threshold: to name the
// worst of several.
func (s *signal) excess(g SignalSettings) float64 {
	if g.Threshold <= 0 || s.last.None != "" {
		return 0
	}
	return s.last.Value / g.Threshold
}
