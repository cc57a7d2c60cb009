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
	// keptBack is how many file descriptors are the log's, which holds up to 128
	// files if it is the embedded one and can't go on without them; the rest is
	// for files that are read again, and connections on their way out.
	keptBack = 192
	// fewest is what there must be to begin at all.
	fewest = 256
)

// A share is how many descriptors a listener may use, and for what.
type share struct {
	streams int // streams and polls; at the back end, connections of publishers
	waiting int // connections without any
	reserve int // held for when the process has no other
	process int // all that the process may have
}

// shareDescriptors divides the process's file descriptors (RLIMIT_NOFILE; Go
// has raised the soft limit to the hard one): what the log needs is kept back,
// a sixteenth is the back end's, so that no number of devices shuts it out.
func shareDescriptors() (devices, backend share, err error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return share{}, share{}, fmt.Errorf("asking for the limit of file descriptors: %w", err)
	}
	all := int(min(limit.Cur, 1<<30))
	if all < fewest {
		return share{}, share{}, fmt.Errorf("the process may hold %d file descriptors, at least %d are needed and one more for each device; raise the limit (ulimit -n)", all, fewest)
	}
	backends := max((all-keptBack)/16, leastBackend)
	return divide(all-keptBack-backends, all), divide(backends, all), nil
}

// ownDescriptors are those of a program with one port.
func ownDescriptors() (share, error) {
	devices, backend, err := shareDescriptors()
	return divide(devices.all()+backend.all(), devices.process), err
}

func (s share) all() int { return s.streams + s.waiting + s.reserve }

const (
	leastBackend = 16   // of the back end's port
	mostWaiting  = 4096 // a crowd's handshakes fit; with net/http each costs about 12 KiB
	mostReserve  = 16
)

// divide says what a listener does with its part of all descriptors.
func divide(part, all int) share {
	s := share{waiting: min(part/8, mostWaiting), reserve: min(part/16, mostReserve), process: all}
	s.streams = part - s.waiting - s.reserve
	return s
}

// evenly divides the same descriptors in halves.
func evenly(a, b share) (share, share) {
	half := divide((a.all()+b.all())/2, a.process)
	return half, half
}
