package redislog

import (
	"sync"

	"downlink/internal/event"
)

// acked is the highest ID of a shard that was acknowledged to a publisher here.
// Whoever reads asks for where it stands, and by that knows of a loss before it;
// what was acknowledged beyond that is asked for besides. Safe for concurrent use.
type acked struct {
	mu sync.Mutex
	id event.ID
}

func (a *acked) raise(id event.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.id = event.Max(a.id, id)
}

// beyond is the ID if it is above the position, or the zero ID.
func (a *acked) beyond(position event.ID) event.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if position.Less(a.id) {
		return a.id
	}
	return event.ID{}
}

// forget drops an ID that is known to be lost.
func (a *acked) forget(id event.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.id == id {
		a.id = event.ID{}
	}
}
