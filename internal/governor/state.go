package governor

import (
	"math"
	"slices"
	"time"
)

// A Verdict is how a signal stands.
type Verdict string

// The verdicts.
const (
	Good    Verdict = "good"    // nothing against a rise
	Fair    Verdict = "fair"    // neither good nor over, or not for long enough to say: the lever stays
	Easing  Verdict = "easing"  // over, and on its way back by itself, or what was done isn't seen yet: the lever stays
	Over    Verdict = "over"    // the lever falls
	AtWall  Verdict = "at-wall" // the lever falls fast
	Unknown Verdict = "unknown" // not read, or too long ago: the lever doesn't rise
	None    Verdict = "none"    // nothing to judge by: takes no part
	Off     Verdict = "off"     // no threshold: takes no part
)

// Verdicts lists every verdict.
func Verdicts() []Verdict { return slices.Clone(severity) }

// A State is all that a governor knows, as anybody may see it. Its JSON form is a
// contract.
type State struct {
	On      bool          `json:"on"`
	Levers  []LeverState  `json:"levers"`
	Signals []SignalState `json:"signals"`
}

// LeverState is how one lever stands.
type LeverState struct {
	Name    string   `json:"name"`
	Ratio   float64  `json:"ratio"`
	Floor   float64  `json:"floor"`
	Maximum *float64 `json:"maximum,omitempty"` // in Unit, if it is limited
	Unit    string   `json:"unit"`
	Use     *float64 `json:"use,omitempty"` // as a part of what ratio 1 allows
	// Signal is by which it is below 1, and Why says so in a sentence.
	Signal string `json:"signal,omitempty"`
	Why    string `json:"why,omitempty"`
	// Worst is the signal that counts most for it at the moment, and Verdict how
	// that one stands.
	Worst   string    `json:"worst,omitempty"`
	Verdict Verdict   `json:"verdict"`
	Since   time.Time `json:"since"` // the last change
}

// SignalState is how one signal stands.
type SignalState struct {
	Name      string   `json:"name"`
	Unit      string   `json:"unit"`
	Verdict   Verdict  `json:"verdict"`
	Value     *float64 `json:"value,omitempty"` // the last that was read
	Of        string   `json:"of,omitempty"`
	Detail    string   `json:"detail,omitempty"`
	Partial   string   `json:"partial,omitempty"` // who hasn't answered
	None      string   `json:"none,omitempty"`    // why there is nothing to judge by
	Trend     *float64 `json:"trend,omitempty"`   // its change a second, if that is known
	Threshold float64  `json:"threshold"`
	Wall      float64  `json:"wall,omitempty"`
	Levers    []string `json:"levers"`
	// Age is how old what was read last is, and Fresh up to which age it counts.
	Age    *float64 `json:"age_seconds,omitempty"`
	Fresh  float64  `json:"fresh_seconds"`
	Period float64  `json:"period_seconds"`
	Error  string   `json:"error,omitempty"` // of the last attempt
	Help   string   `json:"help"`
}

// A Kind is what a change of a lever is.
type Kind string

// The kinds.
const (
	Fall     Kind = "fall"
	FastFall Kind = "fast-fall"
	Rise     Kind = "rise"
	Opened   Kind = "opened"   // the governor was switched off
	Adjusted Kind = "adjusted" // its floor was raised
)

// Kinds lists every kind.
func Kinds() []Kind { return []Kind{Fall, FastFall, Rise, Opened, Adjusted} }

// A Change is one move of a lever. Its JSON form is a contract.
type Change struct {
	// Number counts the changes of this governor since its start, from 1 on.
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`
	Lever   string    `json:"lever"`
	Kind    Kind      `json:"kind"`
	Before  float64   `json:"before"`
	After   float64   `json:"after"`
	Maximum *float64  `json:"maximum,omitempty"`
	Unit    string    `json:"unit"`
	Signal  string    `json:"signal,omitempty"`
	Why     string    `json:"why"`
}

// State is how all of it stands.
func (g *Governor) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := State{On: g.law.settings.On}
	for _, v := range g.law.levers {
		st.Levers = append(st.Levers, g.leverState(v))
	}
	now := time.Since(g.began)
	for _, s := range g.law.signals {
		st.Signals = append(st.Signals, s.state(now, g.law.settings.Signals[s.name]))
	}
	return st
}

func (g *Governor) leverState(v *lever) LeverState {
	s := LeverState{
		Name: v.Name, Ratio: v.ratio, Floor: g.law.floor(v), Maximum: v.maximum(), Unit: v.unit(),
		Signal: v.by, Why: v.why, Verdict: v.verdict, Since: g.since[v.Name].Truncate(0),
	}
	if s.Verdict == "" { // not looked at yet
		s.Verdict = Unknown
	}
	if use, known := v.use(); known {
		s.Use = &use
	}
	if v.worst != nil {
		s.Worst = v.worst.name
	}
	return s
}

func (v *lever) maximum() *float64 {
	if v.Maximum == nil {
		return nil
	}
	if m := v.Maximum(); m > 0 {
		return &m
	}
	return nil
}

func (v *lever) unit() string {
	if v.Unit == "" {
		return "ratio"
	}
	return v.Unit
}

func (s *signal) state(now time.Duration, g SignalSettings) SignalState {
	st := SignalState{
		Name: s.name, Unit: s.Unit, Verdict: s.verdict, Threshold: g.Threshold, Wall: g.Wall, Levers: append([]string{}, g.Levers...),
		Fresh: s.Fresh.Seconds(), Period: s.Period.Seconds(), Help: s.Help,
	}
	if s.err != nil {
		st.Error = s.err.Error()
	}
	if !s.read {
		return st
	}
	age := (now - s.at).Seconds()
	st.Age, st.Of, st.Detail, st.Partial, st.None = &age, s.last.Of, s.last.Detail, s.last.Partial, s.last.None
	if s.last.None == "" {
		value := s.last.Value
		st.Value = &value
	}
	if s.trended {
		trend := s.slope
		st.Trend = &trend
	}
	return st
}

// round is enough of a number for people.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }
