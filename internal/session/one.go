package session

import (
	"time"

	"downlink/internal/event"
	"downlink/internal/shard"
)

// A Delivery is what a driver takes that delivers one thing at a time.
type Delivery struct {
	ID            event.ID
	Type, Payload string        // of an event
	Reason        event.Reason  // of a resync; empty for an event
	After         time.Duration // of a resync
}

// One is like Next, but takes a single thing, in parts; false if there is none.
// The driver must deliver it before it takes another, or end.
func (s *Session) One() (d Delivery, ok bool) {
	d, ok, resume := s.takeOne()
	if resume {
		s.member.Resume() // without our lock: the shard's comes first
	}
	return d, ok
}

func (s *Session) takeOne() (d Delivery, ok, resume bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resync; r != nil {
		s.cursor, s.resync = r.at, nil
		return Delivery{ID: r.at, Reason: r.reason, After: r.after}, true, false
	}
	if len(s.pending) == 0 {
		return Delivery{}, false, false
	}
	return delivery(s.shiftLocked()), true, s.roomLocked()
}

// delivery is a message in parts; one that is too large is a resync in its place.
func delivery(m *shard.Message) Delivery {
	if m.TooLarge {
		return Delivery{ID: m.ID, Reason: event.EventTooLarge}
	}
	return Delivery{ID: m.ID, Type: m.Type, Payload: m.Payload}
}
