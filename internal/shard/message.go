package shard

import (
	"sync"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/frame"
)

// A Message is an entry on its way to sessions. All sessions share it.
type Message struct {
	// Set at construction.
	ID       event.ID
	Target   string
	Type     string
	Payload  string
	TooLarge bool     // the log dropped the payload: its device is told to fetch its state
	faulty   bool     // moves positions and is told to nobody
	shared   *encoded // nil: what is for one session alone isn't kept encoded
	topic    *topic   // nil without a conflation key

	// Guarded by the shard's mutex.
	next *Message // the next one in the hot window with the same target
	prev *Message // the one before
}

// encoded is the frame of a message that several sessions write.
type encoded struct {
	once  sync.Once
	frame []byte
}

const (
	// messageBytes and encodedBytes are the sizes of a Message and of what goes
	// with a shared one; a test holds them to that.
	messageBytes = 104
	encodedBytes = 40
	// entryBytes is what an entry costs beside its message and its texts: what
	// the allocator rounds up for three texts, its slot in the window, and its
	// target's place in the index. Measured (TestHotWindowIsCountedTruly).
	entryBytes = 56
	// frameBytes is what a frame has around type and payload: field names, line
	// ends, an ID, and what the allocator rounds up.
	frameBytes = 72
)

// Frame is the SSE frame of the event, encoded once for all who share it: don't
// change the bytes. Safe for concurrent use.
func (m *Message) Frame() []byte {
	if m.shared == nil {
		return m.encode()
	}
	m.shared.once.Do(func() { m.shared.frame = m.encode() })
	return m.shared.frame
}

func (m *Message) encode() []byte { return frame.AppendEvent(nil, m.ID, m.Type, m.Payload) }

// Size is about what the message costs in memory, in bytes, as long as it is
// held by anybody.
func (m *Message) Size() int {
	size := messageBytes + entryBytes + len(m.Target) + len(m.Type) + len(m.Payload)
	if m.shared != nil {
		size += encodedBytes + frameBytes + len(m.Type) + len(m.Payload)
	}
	return size
}

// A row makes messages side by side, so that one costs no allocation of its
// own. Whoever holds one message holds its row: a row is small, in its texts too.
type row struct {
	free []Message
	room int // bytes of texts that may still come in
}

const (
	rowMessages = (4 << 10) / messageBytes
	rowTexts    = 16 << 10
)

// message makes the message of an entry; shared says that several sessions will
// write it.
func (r *row) message(e *eventlog.Entry, shared bool) *Message {
	texts := len(e.Event.Target) + len(e.Event.Type) + len(e.Event.Payload)
	if len(r.free) == 0 || texts > r.room {
		r.free = make([]Message, min(rowMessages, 1+rowTexts/max(texts, 1)))
		r.room = rowTexts
	}
	m := &r.free[0]
	r.free, r.room = r.free[1:], r.room-texts
	m.ID, m.Target, m.Type, m.Payload = e.ID, e.Event.Target, e.Event.Type, e.Event.Payload
	m.TooLarge = e.Fault == eventlog.FaultTooLarge
	m.faulty = faulty(e)
	if shared {
		m.shared = new(encoded)
	}
	return m
}

// faulty says that sessions don't hear of an entry. One that is too large isn't
// passed over in silence.
func faulty(e *eventlog.Entry) bool {
	return e.Fault != "" && e.Fault != eventlog.FaultTooLarge
}
