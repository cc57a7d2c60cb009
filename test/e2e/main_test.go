// Package e2e runs the built program, with the race detector, against real
// servers: what no package can prove alone. It owns no code of the product.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

// program is the binary under test, built once.
//
//nolint:gochecknoglobals // TestMain has no other way to hand it to tests
var program testkit.Program

// atOnce is how many tests run at a time, on few cores too: they wait for
// others' processes more than they work.
const atOnce = 5

func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); runtime.GOMAXPROCS(0) < atOnce && parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(strconv.Itoa(atOnce)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dir, err := os.MkdirTemp("", "downlink-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program, err = testkit.Build(dir)
	if err != nil {
		os.RemoveAll(dir) //nolint:errcheck // there is a greater trouble
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir) //nolint:errcheck // a directory of the system's
		os.Exit(code)
	}))
}

// onlyOnce is for a test that judges nothing of how a stream's bytes reach a
// device, or how it ends: it is left out when the tests run again on the other
// driver of connections (make test). A test without it runs on both.
func onlyOnce(t *testing.T) {
	t.Helper()
	if driver, again := os.LookupEnv("DOWNLINK_DRIVER"); again {
		t.Skip("this was tested without DOWNLINK_DRIVER=" + driver)
	}
}
