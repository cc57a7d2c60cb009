package gateway

import (
	"fmt"
	"syscall"
)

// Names of the listeners, in log lines, errors and metrics.
const (
	deviceListener  = "device"
	backendListener = "back-end"
)

const (
	// keptBack is how many file descriptors are the log's: the embedded one
	// holds up to 128 files, and can't go on without them.
	keptBack = 192
	// fewest is what there must be to begin at all.
	fewest = 256
)

// shareDescriptors divides the process's file descriptors (RLIMIT_NOFILE; Go
// has raised the soft limit to the hard one): what the log needs is kept back,
// a sixteenth is the back end's, so that no number of devices shuts it out.
func shareDescriptors() (devices, backends int, err error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, 0, fmt.Errorf("asking for the limit of file descriptors: %w", err)
	}
	all := int(min(limit.Cur, 1<<30))
	if all < fewest {
		return 0, 0, fmt.Errorf("the process may hold %d file descriptors, at least %d are needed and one more for each device; raise the limit (ulimit -n)", all, fewest)
	}
	backends = (all - keptBack) / 16
	return all - keptBack - backends, backends, nil
}
