// Package e2e runs the built program, with the race detector, against real
// servers: what no package can prove alone. It owns no code of the product.
package e2e

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

// program is the binary under test, built once.
//
//nolint:gochecknoglobals // TestMain has no other way to hand it to tests
var program testkit.Program

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "downlink-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program, err = testkit.Build(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir) //nolint:errcheck // a directory of the system's
		os.Exit(code)
	}))
}
