// Package chaos runs gateways, publishers and devices under faults that are
// drawn from a seed, and compares what was acknowledged with what each device
// finished. It owns the schedule, the faults and the checker; the servers are
// testkit's. Its invariant: what a device may be told, and what it may miss,
// follows from the faults that were injected, and everything else fails the run.
package chaos

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

// What TestLong does; TestShort takes no flags.
//
//nolint:gochecknoglobals // flags of a test binary
var (
	topologyFlag = flag.String("chaos.topology", "", "run TestLong on embedded, single, list, sentinel or cluster")
	seedFlag     = flag.Uint64("chaos.seed", 0, "seed of the schedule; 0: one by the clock")
	timeFlag     = flag.Duration("chaos.time", 3*time.Minute, "how long faults are injected")
	rateFlag     = flag.Int("chaos.rate", 1500, "events a second that publishers aim at")
	devicesFlag  = flag.Int("chaos.devices", 120, "devices")
	plainFlag    = flag.Bool("chaos.plain", false, "gateways without the race detector")
	resultsFlag  = flag.Bool("chaos.results", false, "write the result into test/chaos/results")
	updateFlag   = flag.Bool("update", false, "write docs/reliability.md anew from test/chaos/results")
)

// built is the binary under test, built when the first run needs it.
//
//nolint:gochecknoglobals // TestMain has no other way to hand it to tests
var built struct {
	once    sync.Once
	dir     string
	program testkit.Program
	err     error
}

func program(tb testing.TB) testkit.Program {
	tb.Helper()
	built.once.Do(func() {
		build := testkit.Build
		if *plainFlag {
			build = testkit.BuildPlain
		}
		built.program, built.err = build(built.dir)
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return built.program
}

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "downlink-chaos")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir) //nolint:errcheck // a directory of the system's
		os.Exit(code)
	}))
}
