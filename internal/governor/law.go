package governor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// A law is the state of all signals and levers. It knows no clock and asks
// nobody: it is told the time, on any clock that goes on steadily.
type law struct {
	settings Settings
	signals  []*signal
	levers   []*lever
}

// A lever is what the law knows of one.
type lever struct {
	Lever
	ratio float64
	// by and why it is below 1.
	by, why string

	fell, rose, moved time.Duration // when it did last
	everFell          bool
	everMoved         bool
	calm              bool // all its signals are good, since:
	since             time.Duration

	// Where it had to fall from, and how often in a row it came to that after a
	// rise: it hesitates before it goes there again.
	failed    float64
	hesitance int
	fast      bool // the last fall was a fast one
	risen     bool // since it fell last

	// The most that was in use lately: what an outage has lowered for a moment, or who is
	// just about to come, isn't what a fall counts from.
	most   float64
	mostAt time.Duration
	looked bool          // ever,
	first  time.Duration // and when for the first time

	verdict Verdict // of the worst of its signals
	worst   *signal // nil: it has none
}

func newLaw(s Settings, signals []Signal, levers []Lever) *law {
	l := &law{settings: s}
	for _, g := range signals {
		l.signals = append(l.signals, &signal{Signal: g, name: g.Probe.Name(), verdict: Unknown})
	}
	for _, v := range levers {
		l.levers = append(l.levers, &lever{Lever: v, ratio: 1, hesitance: 1, failed: math.Inf(1)})
	}
	return l
}

// A move is one change of a lever.
type move struct {
	lever         *lever
	kind          Kind
	before, after float64
	signal, why   string
}

// step judges every signal at a moment, and moves the levers that are due.
func (l *law) step(now time.Duration) (moves []move) {
	for _, s := range l.signals {
		l.remember(now, s)
		s.verdict = s.judge(now, l.settings.Signals[s.name], &l.settings)
	}
	for _, v := range l.levers {
		l.look(now, v)
		if m := l.decide(now, v); m.kind != "" {
			l.apply(now, v, m)
			moves = append(moves, m)
		}
	}
	return moves
}

// remember notes what is let in, for signals that show it late.
func (l *law) remember(now time.Duration, s *signal) {
	if s.pasts == nil {
		s.pasts = make([]past, len(l.levers))
	}
	s.growth = 0
	for i, v := range l.levers {
		if l.couples(s, v) {
			s.pasts[i].note(now, s.settles(), v.load())
			s.growth = max(s.growth, s.pasts[i].growth(v.load()))
		}
	}
	if s.growth == 0 {
		s.growth = 1
	}
}

// couples reports whether a signal moves a lever.
func (l *law) couples(s *signal, v *lever) bool {
	return slices.Contains(l.settings.Signals[s.name].Levers, v.Name)
}

// severity orders verdicts from the one that counts least.
var severity = []Verdict{Off, None, Good, Fair, Unknown, Easing, Over, AtWall} //nolint:gochecknoglobals // an order

// look finds the worst signal of a lever, and since when all have been good.
func (l *law) look(now time.Duration, v *lever) {
	if !v.looked {
		v.looked, v.first = true, now
	}
	if use, known := v.use(); known && (use >= v.most || now-v.mostAt > lately) {
		v.most, v.mostAt = use, now
	}
	v.verdict, v.worst = None, nil
	calm := true
	for _, s := range l.signals {
		g := l.settings.Signals[s.name]
		if !l.couples(s, v) {
			continue
		}
		calm = calm && (s.verdict == Good || s.verdict == None || s.verdict == Off || s.cold && s.verdict == Fair)
		a, b := slices.Index(severity, s.verdict), slices.Index(severity, v.verdict)
		if v.worst == nil || a > b || a == b && s.excess(g) > v.worst.excess(l.settings.Signals[v.worst.name]) {
			v.verdict, v.worst = s.verdict, s
		}
	}
	if calm && !v.calm {
		v.since = now
	}
	v.calm = calm
}

// decide says which move a lever makes now; its kind is empty for none.
func (l *law) decide(now time.Duration, v *lever) move {
	p := &l.settings
	floor := l.floor(v)
	switch {
	case !p.On:
		if v.ratio < 1 {
			return move{lever: v, kind: Opened, before: v.ratio, after: 1, why: "the governor was switched off"}
		}
		return move{}
	case v.ratio < floor:
		return move{lever: v, kind: Adjusted, before: v.ratio, after: floor, signal: v.by, why: "the floor was raised"}
	case v.verdict == AtWall && v.due(now, p.FastPeriod):
		return l.fall(now, v, FastFall, v.worst.needs(p.FastStep, math.Pow(1-p.Step, far)), floor)
	case (v.verdict == Over || v.verdict == AtWall) && v.due(now, p.Period):
		return l.fall(now, v, Fall, v.worst.needs(p.Step, 1), floor)
	case v.ratio < 1 && v.calm && v.verdict != Fair:
		return l.rise(now, v)
	}
	return move{}
}

// due reports whether a fall may follow the last one.
func (v *lever) due(now time.Duration, period Duration) bool {
	return !v.everFell || now-v.fell >= time.Duration(period)
}

func (l *law) floor(v *lever) float64 {
	if v.Floor != nil {
		return min(max(v.Floor(), 0), 1)
	}
	return l.settings.Floor
}

// lately is how long what was in use is still taken for present use.
const lately = 2 * time.Minute

// far is how many steps a lever may be below what is in use: further down it would
// hold nobody back whom it doesn't hold back already, and be longer on its way up.
const far = 2

// returns reports whether those who were here before a start are still on their way
// back, and may be what a signal shows: what is in use says nothing then. It isn't
// what a signal that remembers shows, for that is older.
func (v *lever) returns(now time.Duration, brake Duration) bool {
	return v.Stays && now-v.first <= lately && v.worst.settles() < time.Duration(brake)
}

// depth is the lowest that a lever falls by itself while so much is in use.
func (l *law) depth(use float64) float64 { return use * math.Pow(1-l.settings.Step, far) }

// fall is a step down, counted from what is allowed or from what is in use,
// whichever is less.
func (l *law) fall(now time.Duration, v *lever, kind Kind, step, floor float64) move {
	from := v.ratio
	use, known := v.use()
	if known {
		if v.ratio <= l.depth(use) {
			return move{} // what is in use has to come down first
		}
		if !v.returns(now, l.settings.Brake) {
			from = min(from, v.most)
		}
	}
	to := max(from*(1-step), floor)
	if v.Stays && known {
		to = max(to, l.depth(v.most))
	}
	if to >= v.ratio {
		return move{}
	}
	return move{lever: v, kind: kind, before: v.ratio, after: to, signal: v.worst.name, why: l.explain(v.worst)}
}

func (v *lever) use() (part float64, known bool) {
	if v.Use == nil {
		return 0, false
	}
	part, known = v.Use()
	return max(part, 0), known && !math.IsNaN(part)
}

// rise is a step up, if it is time. The part of the ratio bounds it so that a
// signal that grows with it and was good isn't over afterwards; the part of 1
// makes levers that stand apart come together.
func (l *law) rise(now time.Duration, v *lever) move {
	p := &l.settings
	to := min(v.ratio+max(min(p.RiseStep, p.Step*v.ratio), l.room(v)), 1)
	wait := time.Duration(p.Calm)
	if to >= v.failed {
		wait *= time.Duration(min(v.hesitance, p.Hesitance))
	}
	if now-v.since < wait || v.everMoved && now-v.moved < time.Duration(p.RisePeriod) {
		return move{}
	}
	if to >= v.failed && v.risen && now-v.rose < wait {
		return move{}
	}
	for _, s := range l.signals {
		if l.couples(s, v) && !s.bears(now, to/v.ratio, l.settings.Signals[s.name], p) {
			return move{}
		}
	}
	return move{lever: v, kind: Rise, before: v.ratio, after: to, signal: v.by, why: fmt.Sprintf("all its signals have been good for %v", (now - v.since).Round(time.Second))}
}

// room is how much higher a lever may go at once after a fast fall, which may have been
// deeper than it had to be: half of a fast step or five rises at most, and only while each of its
// signals is so far below half of its threshold that it would stay there.
func (l *law) room(v *lever) float64 {
	if !v.fast {
		return 0
	}
	part := min(l.settings.FastStep/2, 5*l.settings.RiseStep/v.ratio)
	for _, s := range l.signals {
		g := l.settings.Signals[s.name]
		if !l.couples(s, v) || s.last.None != "" || g.Threshold <= 0 {
			continue
		}
		_, high, _ := s.bounds(lasting)
		if level := max(high, high*s.growth); level > 0 {
			part = min(part, g.Threshold/2/level-1)
		}
	}
	return max(part, 0) * v.ratio
}

// apply carries a move out.
func (l *law) apply(now time.Duration, v *lever, m move) {
	v.ratio = m.after
	v.moved, v.everMoved = now, true
	switch m.kind {
	case Fall, FastFall:
		if v.risen || !v.everFell {
			v.failed = m.before
		}
		switch {
		case !v.risen:
		case now-v.rose > time.Duration(2*l.settings.Hesitance)*time.Duration(l.settings.Calm):
			v.hesitance = 1 // it has held for long: something else has changed
		default:
			v.hesitance = min(2*v.hesitance, l.settings.Hesitance)
		}
		v.fell, v.everFell, v.risen, v.fast = now, true, false, m.kind == FastFall
		v.by, v.why = m.signal, m.why
	case Rise:
		if m.before >= v.failed { // it has held there
			v.failed, v.hesitance = math.Inf(1), 1
		}
		v.rose, v.risen = now, true
	case Opened:
		v.failed, v.hesitance = math.Inf(1), 1
	case Adjusted:
	}
	if v.ratio >= 1 {
		v.by, v.why = "", ""
	}
	for _, s := range l.signals {
		if l.couples(s, v) {
			s.moved, s.touched, s.drawn = now, true, false
			if m.kind == Rise {
				s.rose, s.risen = now, true
			}
		}
	}
}

// explain says in a sentence why a signal makes a lever fall.
func (l *law) explain(s *signal) string {
	g := l.settings.Signals[s.name]
	text := s.name
	if s.last.Of != "" {
		text += " of " + s.last.Of
	}
	text += " is " + amount(s.last.Value, s.Unit)
	switch {
	case s.early:
		text += ", and at this rate comes to " + amount(s.peak, s.Unit) + " within " + Duration(s.settles()).String() + ", over the threshold of " + amount(g.Threshold, s.Unit)
	case s.verdict == AtWall && s.last.Value >= g.Wall:
		text += ", at the wall of " + amount(g.Wall, s.Unit)
	case s.verdict == AtWall:
		text += ", and would reach the wall of " + amount(g.Wall, s.Unit) + " within " + l.settings.Brake.String()
	default:
		text += ", over the threshold of " + amount(g.Threshold, s.Unit)
	}
	if s.last.Detail != "" {
		text += " (" + s.last.Detail + ")"
	}
	return text
}

// amount writes a value for people.
func amount(v float64, unit string) string {
	if unit == "ratio" {
		return strconv.FormatFloat(math.Round(v*1000)/10, 'f', -1, 64) + " %"
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + unit
}
