package governor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Settings are what may be changed while a governor runs. Ratios and steps are
// parts of 1.
type Settings struct {
	// On false opens every lever at once, and moves none; the signals are read and
	// shown all the same.
	On bool `json:"on"`

	Step       float64  `json:"step"`        // a fall: this part of min(ratio, use)
	Period     Duration `json:"period"`      // between two falls
	FastStep   float64  `json:"fast_step"`   // a fall at the wall, or on the way to it
	FastPeriod Duration `json:"fast_period"` // between two of these
	// Brake is how long before the wall would be reached the lever falls fast.
	Brake Duration `json:"brake"`
	// Recover: a signal over its threshold that falls, and will be under it in so
	// long, makes no lever fall. It is what an outage has left behind, or the work
	// of the falls before.
	Recover    Duration `json:"recover"`
	Calm       Duration `json:"calm"`        // for how long all must have been good before a rise
	RiseStep   float64  `json:"rise_step"`   // a rise: this part of 1, and never more than Step of the ratio
	RisePeriod Duration `json:"rise_period"` // between two rises
	Floor      float64  `json:"floor"`       // no lever falls below it
	// Good is up to which part of its threshold a signal is good.
	Good float64 `json:"good"`
	// Hesitance bounds how many times as long as Calm a lever waits before it rises
	// again to where it had to fall from; it doubles each time.
	Hesitance int `json:"hesitance"`

	Signals map[string]SignalSettings `json:"signals"`
}

// SignalSettings are how one signal is judged.
type SignalSettings struct {
	Threshold float64  `json:"threshold"` // 0: it moves nothing
	Wall      float64  `json:"wall"`      // 0: there is none
	Levers    []string `json:"levers"`    // that it moves: the coupling
}

// A Duration is written as a text: "30s".
type Duration time.Duration

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("write a duration such as 30s or 2m, not %q", text)
	}
	*d = Duration(v)
	return nil
}

// String is for people.
func (d Duration) String() string { return time.Duration(d).String() }

func (d Duration) seconds() float64 { return time.Duration(d).Seconds() }

// Defaults are the settings for signals of these kinds that nobody has changed.
// docs/decisions/0032 says where the figures come from.
func Defaults(signals []Signal) Settings {
	s := Settings{
		On:   true,
		Step: 0.10, Period: Duration(30 * time.Second),
		FastStep: 0.50, FastPeriod: Duration(10 * time.Second), Brake: Duration(time.Minute),
		Recover: Duration(30 * time.Minute), Calm: Duration(time.Minute),
		RiseStep: 0.03, RisePeriod: Duration(30 * time.Second),
		Floor: 0.10, Good: 0.90, Hesitance: 16,
		Signals: make(map[string]SignalSettings, len(signals)),
	}
	for _, g := range signals {
		s.Signals[g.Probe.Name()] = SignalSettings{g.Threshold, g.Wall, slices.Clone(g.Levers)}
	}
	return s
}

// clone shares nothing with s.
func (s Settings) clone() Settings {
	s.Signals = maps.Clone(s.Signals)
	for name, g := range s.Signals {
		g.Levers = append([]string{}, g.Levers...) // [] in JSON, not null
		s.Signals[name] = g
	}
	return s
}

// A Fault is one setting that can't be as it was asked for.
type Fault struct {
	Name   string // as in JSON, with dots: signals.redis_memory.threshold
	Reason string // completes the sentence
}

// Faults are all that is wrong with settings, as one error.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Name + " " + f.Reason
	}
	return strings.Join(lines, "; ")
}

const (
	shortest = Duration(time.Second)
	longest  = Duration(24 * time.Hour)
)

// check says all that is wrong with settings for these levers; nil if nothing is.
func (s Settings) check(levers []string) error {
	var faults Faults
	part := func(name string, v, least, most float64) {
		if !(v >= least && v <= most) { // NaN is in no range
			faults = append(faults, Fault{name, fmt.Sprintf("can't be %v; allowed: %v to %v", v, least, most)})
		}
	}
	span := func(name string, d, least Duration) {
		if d < least || d > longest {
			faults = append(faults, Fault{name, fmt.Sprintf("can't be %v; allowed: %v to %v", d, least, longest)})
		}
	}
	part("step", s.Step, 0.01, 0.9)
	part("fast_step", s.FastStep, max(s.Step, 0.01), 0.9)
	part("rise_step", s.RiseStep, 0.001, max(s.Step, 0.001)) // more slowly than it fell
	part("floor", s.Floor, 0.001, 1)
	part("good", s.Good, 0.1, 1)
	part("hesitance", float64(s.Hesitance), 1, 1000)
	span("period", s.Period, shortest)
	span("fast_period", s.FastPeriod, shortest)
	span("rise_period", s.RisePeriod, shortest)
	span("calm", s.Calm, shortest)
	span("brake", s.Brake, 0)
	span("recover", s.Recover, 0)
	for _, name := range slices.Sorted(maps.Keys(s.Signals)) {
		faults = append(faults, s.Signals[name].faults("signals."+name, levers)...)
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

func (g SignalSettings) faults(at string, levers []string) (faults []Fault) {
	amount := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }
	switch {
	case !amount(g.Threshold):
		faults = append(faults, Fault{at + ".threshold", fmt.Sprintf("can't be %v; write 0 (it moves nothing) or more", g.Threshold)})
	case !amount(g.Wall):
		faults = append(faults, Fault{at + ".wall", fmt.Sprintf("can't be %v; write 0 (there is none) or more", g.Wall)})
	case g.Wall > 0 && g.Wall <= g.Threshold:
		faults = append(faults, Fault{at + ".wall", fmt.Sprintf("can't be %v: it must be above the threshold, which is %v", g.Wall, g.Threshold)})
	}
	for _, l := range g.Levers {
		if !slices.Contains(levers, l) {
			faults = append(faults, Fault{at + ".levers", fmt.Sprintf("can't name %q; there are %s", l, strings.Join(levers, ", "))})
		}
	}
	return faults
}

// ratioUnit is the unit of signals that are a part of 1.
const ratioUnit = "ratio"

// percent is what is wrong with the values of a signal that is a part of 1: 80 for
// 80 % would never be reached, and so switch the signal off without a word.
func (g SignalSettings) percent(at string) (faults []Fault) {
	for name, v := range map[string]float64{at + ".threshold": g.Threshold, at + ".wall": g.Wall} {
		if v > 1 && !math.IsInf(v, 0) {
			faults = append(faults, Fault{name, fmt.Sprintf("can't be %v: it is a part of 1, so write 0.8 for 80 %%", v)})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Name, b.Name) })
	return faults
}
