package probes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"

	"downlink/internal/governor"
)

// ProcessMemoryName is the name of what is read of this process's memory.
const ProcessMemoryName = "process_memory"

// ProcessMemory is how near this process is to the limit that it meets first:
// that of its control group, beyond which the kernel kills it, or GOMEMLIMIT,
// near which it does little but collect garbage.
func ProcessMemory() governor.Signal {
	return memoryOf(groupFiles{proc: "/proc/self", root: "/sys/fs/cgroup"}, readHeap)
}

func memoryOf(files groupFiles, heap func() (heapUse, error)) governor.Signal {
	s := own(ProcessMemoryName, func(context.Context) (governor.Reading, error) {
		ours, errHeap := heap()
		group, errGroup := files.read()
		return nearest(ours, group, errHeap, errGroup)
	})
	s.Unit = "ratio"
	s.Help = "Memory that the gateway needs, as a part of its limit: GOMEMLIMIT, or what its control group (container, systemd unit) may have. " +
		"At 100 % it is killed, or is busy collecting garbage. " +
		"Each device costs some; so does hot_window_bytes, and what slow devices have pending (pending_bytes)."
	s.Threshold, s.Wall, s.Levers = 0.85, 0.95, []string{governor.Admission}
	return s
}

// nearest is the limit of which the largest part is used.
func nearest(ours heapUse, group groupUse, failed ...error) (governor.Reading, error) {
	err := errors.Join(failed...)
	var r governor.Reading
	if ours.limit > 0 {
		r = governor.Reading{
			Value: float64(ours.needed) / float64(ours.limit), Of: "GOMEMLIMIT",
			Detail: size(ours.needed) + " without garbage, of " + size(ours.limit),
		}
	}
	if group.limit > 0 {
		if part := float64(group.used) / float64(group.limit); r.Of == "" || part > r.Value {
			r = governor.Reading{Value: part, Of: "control group", Detail: size(group.used) + " of " + size(group.limit)}
		}
	}
	switch {
	case r.Of == "" && err != nil:
		return governor.Reading{}, err
	case r.Of == "":
		r.None = "the process has no memory limit: set GOMEMLIMIT to about 80 % of what it may have"
	case err != nil:
		r.Partial = err.Error()
	}
	return r, nil
}

// heapUse is what the process's own limit is about.
type heapUse struct {
	needed uint64 // bytes that a collection can't free
	limit  uint64 // bytes; 0: there is none
}

// The runtime's names.
const (
	liveBytes     = "/gc/heap/live:bytes" // marked by the last collection
	objectBytes   = "/memory/classes/heap/objects:bytes"
	unusedBytes   = "/memory/classes/heap/unused:bytes"
	freeBytes     = "/memory/classes/heap/free:bytes"
	releasedBytes = "/memory/classes/heap/released:bytes"
	totalBytes    = "/memory/classes/total:bytes"
)

// readHeap asks the runtime. What counts for GOMEMLIMIT is all that it holds but
// what it has given back; but that may be near the limit at any time, because
// garbage is left lying until it comes near. So what is told is what a collection
// would leave: what the last one found alive, and all that is no heap.
func readHeap() (heapUse, error) {
	samples := []metrics.Sample{{Name: liveBytes}, {Name: objectBytes}, {Name: unusedBytes}, {Name: freeBytes}, {Name: releasedBytes}, {Name: totalBytes}}
	metrics.Read(samples)
	var bytes [6]uint64
	for i, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return heapUse{}, fmt.Errorf("this Go runtime doesn't tell %s", s.Name)
		}
		bytes[i] = s.Value.Uint64()
	}
	live, heap, total := bytes[0], bytes[1]+bytes[2]+bytes[3]+bytes[4], bytes[5]
	if live == 0 { // nothing was collected yet
		live = bytes[1]
	}
	if total < heap {
		return heapUse{}, fmt.Errorf("the Go runtime says that it has %d bytes, and %d of them for the heap", total, heap)
	}
	u := heapUse{needed: live + total - heap}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		u.limit = max(uint64(limit), 1)
	}
	return u, nil
}
