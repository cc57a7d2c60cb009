package rebalance

// A State is what a gateway does about its place in the fleet, and why.
type State string

// The states.
const (
	Single    State = "single"    // the embedded log: there is no other gateway
	Unknown   State = "unknown"   // nobody knows how the others stand: the log is away, or the gateway has just begun
	Absent    State = "absent"    // this gateway isn't taking devices: it isn't ready, goes out of service, or its log is away
	Alone     State = "alone"     // no other gateway is there
	Even      State = "even"      // it isn't far above the mean
	Off       State = "off"       // it is, and rebalance_rate is 0: surplus says what it would let go
	Settling  State = "settling"  // it is, but not for rebalance_after yet, or a gateway has come or gone since
	Full      State = "full"      // it is, and the gateways below the mean have no room
	Spent     State = "spent"     // it is, and all streams that are old enough were let go
	Returning State = "returning" // it is, and those that were let go came straight back
	Shedding  State = "shedding"  // it is, and lets streams go
)

// States lists every state.
func States() []State {
	return []State{Single, Unknown, Absent, Alone, Even, Off, Settling, Full, Spent, Returning, Shedding}
}

// A Status is how a gateway stands in the fleet. Its JSON form is a contract.
type Status struct {
	State    State   `json:"state"`
	Gateways int     `json:"gateways"` // that say how they stand, this one too; 0: unknown
	Mean     float64 `json:"mean"`     // streams of each
	Allowed  int     `json:"allowed"`  // streams here before anything is let go
	// Surplus is how many streams this gateway would let go now, or does; it stops at
	// the mean.
	Surplus int `json:"surplus"`
	// PerSecond is its part of rebalance_rate for that.
	PerSecond float64 `json:"per_second"`
}
