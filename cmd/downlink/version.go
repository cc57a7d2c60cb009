package main

import (
	"fmt"
	"runtime"

	"downlink/internal/metrics"
)

// versionCmd prints what the binary knows of itself.
type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(io console) error {
	b := metrics.ReadBuild(version)
	_, err := fmt.Fprintf(io.out, "downlink %s (%s, %s, %s/%s)\n", b.Version, b.Revision, b.Go, runtime.GOOS, runtime.GOARCH)
	return err
}
