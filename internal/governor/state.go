package governor

import "time"

// A Verdict is how a signal stands.
type Verdict string

// The verdicts.
const (
	Good    Verdict = "good"    // nothing against a rise
	Fair    Verdict = "fair"    // neither good nor over: the lever stays
	Easing  Verdict = "easing"  // over, and on its way back by itself: the lever stays
	Over    Verdict = "over"    // the lever falls
	AtWall  Verdict = "at-wall" // the lever falls fast
	Unknown Verdict = "unknown" // not read, or too long ago: the lever doesn't rise
	None    Verdict = "none"    // nothing to judge by: takes no part
	Off     Verdict = "off"     // no threshold: takes no part
)

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
	// Signal is by which it is below 1, or stays there.
	Signal string    `json:"signal,omitempty"`
	Why    string    `json:"why,omitempty"`
	Since  time.Time `json:"since"` // the last change
	Moves  string    `json:"moves"` // falling, holding, rising, or open
}

// SignalState is how one signal stands.
type SignalState struct {
	Name      string     `json:"name"`
	Unit      string     `json:"unit"`
	Verdict   Verdict    `json:"verdict"`
	Value     *float64   `json:"value,omitempty"` // the last that was read
	Of        string     `json:"of,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	Trend     *float64   `json:"trend,omitempty"` // its change a second, if that is known
	Threshold float64    `json:"threshold"`
	Wall      float64    `json:"wall,omitempty"`
	Levers    []string   `json:"levers"`
	Read      *time.Time `json:"read,omitempty"` // when Value was read
	Age       float64    `json:"age_seconds"`    // of Value; -1: there is none
	Fresh     float64    `json:"fresh_seconds"`  // up to which age it counts
	Error     string     `json:"error,omitempty"`
	Help      string     `json:"help"`
}

// A Kind is what a change of a lever is.
type Kind string

// The kinds.
const (
	Fall     Kind = "fall"
	FastFall Kind = "fast-fall"
	Rise     Kind = "rise"
	Opened   Kind = "opened"   // by a setting, or because the governor was switched off
	Adjusted Kind = "adjusted" // by a setting: its floor was raised
)

// A Change is one move of a lever. Its JSON form is a contract.
type Change struct {
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
