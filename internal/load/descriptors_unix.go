//go:build unix

package load

import (
	"fmt"

	"golang.org/x/sys/unix"

	"downlink/internal/fdtable"
)

// spare is how many descriptors a run needs beside one for each device.
const spare = 64

// descriptors checks that a process may open as many connections, and prepares
// it for them. Go has raised the soft limit to the hard one by then.
func descriptors(devices int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if need := uint64(devices) + spare; need > uint64(limit.Cur) {
		return fmt.Errorf("%d devices need %d open files, and this process may have %d: raise the limit (ulimit -n %d, as root beyond the hard limit) or use fewer --devices", devices, need, limit.Cur, need)
	}
	fdtable.Grow(devices + spare)
	return nil
}
