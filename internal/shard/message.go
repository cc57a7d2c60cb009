package shard

import (
	"sync"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/frame"
)

// A Message is an entry on its way to sessions. All sessions share it, and its
// frame is encoded once, by whoever writes it first.
type Message struct {
	// Set at construction.
	ID    event.ID
	Event event.Event
	Fault eventlog.Fault

	encode sync.Once
	frame  []byte

	// Guarded by the shard's mutex.
	next *Message // the next one in the hot window with the same target
}

// NewMessage makes the message of an entry.
func NewMessage(e eventlog.Entry) *Message {
	return &Message{ID: e.ID, Event: e.Event, Fault: e.Fault}
}

// Frame is the SSE frame of the event. The bytes are shared: don't change them.
// Safe for concurrent use.
func (m *Message) Frame() []byte {
	m.encode.Do(func() {
		size := len(m.Event.Payload) + len(m.Event.Type) + 80
		m.frame = frame.AppendEvent(make([]byte, 0, size), m.ID, m.Event.Type, m.Event.Payload)
	})
	return m.frame
}

// Size is about what the message costs in memory, in bytes, with its frame.
func (m *Message) Size() int {
	const overhead = 320 // struct, strings' headers, slots in window and index
	return overhead + len(m.Event.Target) + 2*(len(m.Event.Type)+len(m.Event.Payload))
}

// deliverable says that sessions must hear of it: faulty entries are passed
// over, but one that is too large is told to its device.
func (m *Message) deliverable() bool {
	return m.Fault == "" || m.Fault == eventlog.FaultTooLarge
}
