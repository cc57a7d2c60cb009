package redislog

import (
	"slices"
	"sync"

	"downlink/internal/event"
)

// acked is what was acknowledged to publishers here of a shard. Whoever reads
// asks for where it stands, and by that knows of a loss before it; the highest
// ID that was acknowledged beyond that is asked for besides. What was
// acknowledged over an earlier connection is asked for once in any case: at the
// other end may be another server now, or the same one with another past, whose
// IDs go on above it. Safe for concurrent use.
type acked struct {
	mu      sync.Mutex
	conn    link
	id      event.ID   // over conn
	earlier []event.ID // the last ones over others, oldest first
}

// mostEarlier bounds what is to be asked for of connections that were lost one
// after the other, faster than anybody could ask.
const mostEarlier = 8

func (a *acked) raise(id event.ID, conn link) {
	if id.IsZero() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != conn {
		if !a.id.IsZero() && len(a.earlier) < mostEarlier {
			a.earlier = append(a.earlier, a.id)
		}
		a.conn, a.id = conn, event.ID{}
	}
	a.id = event.Max(a.id, id)
}

// ask is an ID that a reader at the position has to ask for, or the zero ID.
func (a *acked) ask(position event.ID) event.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.earlier) > 0:
		return a.earlier[0]
	case position.Less(a.id):
		return a.id
	}
	return event.ID{}
}

// found notes that the log has an ID, or has swept it.
func (a *acked) found(id event.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.earlier = slices.DeleteFunc(a.earlier, func(e event.ID) bool { return e == id })
}

// forget drops an ID that is known to be lost.
func (a *acked) forget(id event.ID) {
	a.found(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.id == id {
		a.id = event.ID{}
	}
}
