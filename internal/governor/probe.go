// Package governor owns the law by which what is measured moves what is allowed:
// signals (Redis's memory, the lag, the heap, …) come in, and for each lever (who
// may come in, how fast may be published) a ratio between its floor and 1 comes
// out. It measures nothing and refuses nobody: probes are handed in, and so is
// what a lever moves. Its invariant: a lever falls only by a signal that was read
// and is over its threshold, and rises only while every signal that moves it was
// read and is good; what isn't known moves nothing.
package governor

import (
	"context"
	"time"
)

// A Probe asks one question. Read is called by one goroutine at a time, with a
// context that ends after the signal's time limit, and must return soon after
// that. It returns
//
//   - a Reading with a Value. Nothing to be seen because nothing happens (no
//     entry waits, nobody publishes) is a value: 0;
//   - a Reading with None, if there is nothing to judge by: Redis has no maximum,
//     the process no memory limit. Such a signal takes no part;
//   - an error, if the question wasn't answered, or not credibly. It completes
//     the sentence "redis_memory isn't known: …", and holds no secret. It is
//     never turned into a zero, nor into the value of before.
type Probe interface {
	// Name is the signal's: a word such as redis_memory, in metrics, in the
	// settings and on pages.
	Name() string
	Read(ctx context.Context) (Reading, error)
}

// A Reading is the answer to a probe's question.
type Reading struct {
	// Value is in the signal's unit: finite, not negative, and worse the larger it
	// is. Of several (nodes, groups, shards) it is the worst one's.
	Value float64
	// Of names that one; empty if there is only one, or if it has no name.
	Of string
	// Detail is for people: "412 MiB of 512 MiB; noeviction: at the maximum Redis
	// refuses events". It may be empty.
	Detail string
	// Partial says who hasn't answered, if not all did: Value is a lower bound then,
	// which can be over a threshold but proves nothing good.
	Partial string
	// None says why there is nothing to judge by; Value doesn't count then.
	None string
}

// A Signal is a probe and how its readings are judged, before anybody has
// configured it.
type Signal struct {
	Probe Probe
	Unit  string // of values and thresholds: "ratio", "entries", "seconds", "bytes/s", …
	Help  string // what it is and what can be done about it, in sentences

	Period  time.Duration // between the beginnings of two readings
	Timeout time.Duration // of one reading
	// Fresh is for how long a reading counts; at least twice the period, or one
	// late answer is an unknown signal.
	Fresh time.Duration
	// Settles is after which time a signal shows in full what a step of its lever
	// has done: for Redis's memory the window, because what was published before
	// stays for so long. Until then a rise goes on being felt, and is reckoned with.
	Settles func() time.Duration

	// Ripple is how often the signal goes up and down by itself, as Redis's memory
	// does between two sweeps: a trend is seen over twice that time at least.
	Ripple time.Duration

	// Threshold is from which value on the lever falls; 0: it moves nothing until
	// somebody sets one. Wall is from which value on it falls fast; 0: there is none.
	Threshold, Wall float64
	Levers          []string // that it moves
}

// The levers of a gateway.
const (
	Admission = "admission" // streams and polls, and how fast they begin
	Publish   = "publish"   // entries a second
)

// A Lever is what a governor moves.
type Lever struct {
	Name string
	Unit string // of Maximum: "connections", "entries/s"; "ratio" if there is none
	// Use is which part is in use of what is allowed at ratio 1; ok is false if
	// that isn't known. A fall counts from it, if less is used than is allowed.
	Use func() (part float64, ok bool)
	// Stays says that what is in use doesn't end because the lever has fallen: a
	// connection, unlike an event. Then one fall goes no deeper than holds back
	// everybody new, also a fast one: who comes back should find a place.
	Stays bool
	// Set applies a position. It is called at each change, one after the other and with
	// the governor's lock: it neither blocks nor asks the governor.
	Set func(Position)
	// Maximum is what is allowed now, in Unit; 0: it isn't limited. Nil: a ratio
	// is all that there is.
	Maximum func() float64
	// Floor is the ratio below which the lever doesn't fall, asked when it is
	// needed; nil means the settings' own.
	Floor func() float64
}

// A Position is where a lever stands.
type Position struct {
	Ratio float64 // 1: nothing is held back
	// Signal is by which it stands below 1, and Why says it in a sentence; both
	// are empty at 1.
	Signal string
	Why    string
}
