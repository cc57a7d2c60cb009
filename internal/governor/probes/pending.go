package probes

import (
	"context"
	"fmt"

	"downlink/internal/governor"
)

// PendingBytesName is the name of what is read of the sessions.
const PendingBytesName = "pending_bytes"

// Sessions tells what waits in memory for all devices together, and how many have
// something waiting. It may take some milliseconds.
type Sessions interface {
	Pending() (bytes int64, devices int)
}

// PendingBytes is what waits in memory for slow devices. An event for many counts
// for each of them, though it is in memory once; so what is much depends on what
// is published, and it moves nothing before a threshold is set: too much memory
// shows in process_memory.
func PendingBytes(s Sessions) governor.Signal {
	g := own(PendingBytesName, func(context.Context) (governor.Reading, error) {
		bytes, devices := s.Pending()
		if bytes < 0 || devices < 0 {
			return governor.Reading{}, fmt.Errorf("it was counted wrongly: %d bytes for %d sessions", bytes, devices)
		}
		return governor.Reading{Value: float64(bytes), Detail: fmt.Sprintf("%s for %d sessions", size(uint64(bytes)), devices)}, nil
	})
	g.Unit = "bytes"
	g.Help = "What waits in memory for devices that read more slowly than it comes; an event for many counts for each of them. " +
		"Set a threshold if such devices are the reason why memory runs short. pending_bytes and pending_events bound what one device may have."
	g.Period = 2 * ownPeriod // it looks at every session
	g.Levers = []string{governor.Admission}
	return g
}
