package governor

import (
	"time"
)

// Settings are what may be changed while a governor runs. Ratios and steps are
// parts of 1.
type Settings struct {
	// On false lets every lever go to 1 at once, and moves none; the signals are
	// read and shown all the same.
	On bool `json:"on"`

	Step          float64  `json:"step"`           // a fall: this part of min(ratio, use)
	Period        Duration `json:"period"`         // between two falls
	FastStep      float64  `json:"fast_step"`      // a fall at the wall, or close to it
	FastPeriod    Duration `json:"fast_period"`    // between two of these
	Brake         Duration `json:"brake"`          // as long before the wall is reached is close to it
	Recover       Duration `json:"recover"`        // a signal that will be good again in so long, by itself, moves nothing
	Calm          Duration `json:"calm"`           // for how long all must have been good before a rise
	RiseStep      float64  `json:"rise_step"`      // a rise: this part of 1
	RisePeriod    Duration `json:"rise_period"`    // between two rises
	Floor         float64  `json:"floor"`          // no lever falls below it
	Good          float64  `json:"good"`           // up to this part of its threshold a signal is good
	MostHesitance int      `json:"most_hesitance"` // a rise that failed is tried after up to so many times Calm

	Signals map[string]SignalSettings `json:"signals"`
}

// SignalSettings are how one signal is judged.
type SignalSettings struct {
	Threshold float64  `json:"threshold"` // 0: it moves nothing
	Wall      float64  `json:"wall"`      // 0: there is none
	Levers    []string `json:"levers"`    // that it moves: the coupling
}

// Duration is a time.Duration that is written as a text: "30s".
type Duration = time.Duration
