// Package logtest owns the conformance suite: what every log behind the
// contract of eventlog must do, whatever it stores its entries in. It knows no
// log itself and is imported by tests only. Its invariant: it uses nothing that
// the contract doesn't promise, so a log that fails here breaks a promise.
package logtest

import (
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Options is what a case needs of the log it runs against.
type Options struct {
	Shards        int
	Window        time.Duration
	MaxEventBytes int
}

// A Harness is one fresh log and the ways around its contract. Every hook may
// be nil where the log has no such way; cases that need it are skipped.
type Harness struct {
	Log eventlog.Log
	// AppendRaw writes an entry past the API: names and values alternate.
	AppendRaw func(shard int, fields ...string) event.ID
	// Remove takes one entry away behind the log's back.
	Remove func(shard int, id event.ID)
	// Reopen closes the log and opens it again on the same data.
	Reopen func() eventlog.Log
	// Advance moves the log's clock. Without it the cases wait in real time.
	Advance func(time.Duration)
}

// Open makes a fresh, empty log for one case. It may fail the test; what it
// started ends with t.Cleanup. The suite closes Harness.Log itself.
type Open func(t *testing.T, o Options) Harness

// Windows of the cases: one that never passes during a case, and one that does.
const (
	longWindow  = time.Hour
	shortWindow = 300 * time.Millisecond
)

type testCase struct {
	name string
	opts Options // zero fields get the suite's defaults
	run  func(*rig)
}

// Run runs every case against logs made by open, in parallel.
func Run(t *testing.T, open Open) {
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"Append", appendCases()},
		{"Read", readCases()},
		{"Range", rangeCases()},
		{"Once", onceCases()},
		{"Sweep", sweepCases()},
		{"Judge", judgeCases()},
		{"Fault", faultCases()},
		{"Control", controlCases()},
		{"Claim", claimCases()},
		{"Positions", positionCases()},
		{"Life", lifeCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newRig(t, open, withDefaults(c.opts)))
				})
			}
		})
	}
}

func withDefaults(o Options) Options {
	if o.Shards == 0 {
		o.Shards = 4
	}
	if o.Window == 0 {
		o.Window = longWindow
	}
	if o.MaxEventBytes == 0 {
		o.MaxEventBytes = 1 << 20
	}
	return o
}
