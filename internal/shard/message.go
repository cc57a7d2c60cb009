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
	ID       event.ID
	Target   string
	Type     string
	Payload  string
	TooLarge bool // the log dropped the payload: its device is told to fetch its state
	faulty   bool // moves positions and is told to nobody

	// Guarded by the shard's mutex.
	held   bool     // it is in the hot window
	framed bool     // and is counted there with its frame
	next   *Message // the next one in the hot window with the same target
	prev   *Message // the one before

	// Guarded by mu.
	mu    sync.Mutex
	frame []byte // nil until it is asked for
}

const (
	// messageBytes is the size of a Message; a test holds it to that.
	messageBytes = 120
	// entryBytes is what an entry costs beside its message and its texts: what
	// the allocator rounds up for three texts, its slot in the window, and its
	// target's place in the index. Measured (TestHotWindowIsCountedTruly).
	entryBytes = 56
	// frameBytes is what a frame has around type and payload: field names, line
	// ends, an ID, and what the allocator rounds up.
	frameBytes = 72
)

// Frame is the SSE frame of the event. The bytes are shared: don't change them.
// Safe for concurrent use.
func (m *Message) Frame() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.frame == nil {
		m.frame = frame.AppendEvent(nil, m.ID, m.Type, m.Payload)
	}
	return m.frame
}

// Size is about what the message costs in memory, in bytes, with its frame.
func (m *Message) Size() int { return m.bare() + m.frameSize() }

func (m *Message) bare() int {
	return messageBytes + entryBytes + len(m.Target) + len(m.Type) + len(m.Payload)
}

func (m *Message) frameSize() int { return frameBytes + len(m.Type) + len(m.Payload) }

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

// message makes the message of an entry.
func (r *row) message(e *eventlog.Entry) *Message {
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
	return m
}

// faulty says that sessions don't hear of an entry. One that is too large isn't
// passed over in silence.
func faulty(e *eventlog.Entry) bool {
	return e.Fault != "" && e.Fault != eventlog.FaultTooLarge
}
