package shard

import (
	"sort"

	"downlink/internal/event"
)

// hot is the recent part of a shard in memory: every entry in (floor, the
// shard's position], indexed by target. Guarded by the shard's mutex.
type hot struct {
	floor   event.ID // everything after it is here
	entries []*Message
	head    int                 // entries[head:] are in the window
	index   map[string]*Message // the newest message of each target; the others hang behind it
	topics  topics
	bytes   int
	row     row
}

func newHot() hot { return hot{index: make(map[string]*Message), topics: make(topics)} }

// reset empties the window; it begins anew after floor.
func (h *hot) reset(floor event.ID) {
	*h = newHot()
	h.floor = floor
}

// add appends the newest message, which has a conflation key or an empty one, and
// lets the oldest go while the window is over limit bytes: all of them, if the
// newest alone is larger than that.
func (h *hot) add(m *Message, key string, limit int) {
	h.entries = append(h.entries, m)
	h.bytes += m.Size()
	if key != "" {
		h.enter(m, key)
	}
	if !m.faulty {
		if m.prev = h.index[m.Target]; m.prev != nil {
			m.prev.next = m
		}
		h.index[m.Target] = m
	}
	for h.bytes > limit {
		h.evict()
	}
}

// enter makes m the newest message of its topic.
func (h *hot) enter(m *Message, key string) {
	t, made := h.topics.at(m.Target, key)
	if made {
		h.bytes += t.size()
	}
	t.newest = m.ID
	m.topic = t
}

func (h *hot) evict() {
	m := h.entries[h.head]
	h.entries[h.head] = nil
	h.head++
	h.bytes -= m.Size()
	if t := m.topic; t != nil && t.newest == m.ID {
		delete(h.topics, t.topicName)
		h.bytes -= t.size()
	}
	h.floor = m.ID
	switch {
	case m.faulty:
	case m.next == nil:
		delete(h.index, m.Target)
	default:
		m.next.prev = nil
		m.next = nil // a session that still holds m mustn't hold the window
	}
	if h.head > 64 && h.head > len(h.entries)/2 {
		n := copy(h.entries, h.entries[h.head:])
		clear(h.entries[n:])
		h.entries, h.head = h.entries[:n], 0
	}
}

// window is the messages held, oldest first.
func (h *hot) window() []*Message { return h.entries[h.head:] }

// overlap is an ID inside the window up to which a lap reads: far enough that
// the window is still there when the lap arrives, and no further than needed.
func (h *hot) overlap(pos event.ID) event.ID {
	w := h.window()
	if len(w) == 0 {
		return pos
	}
	return w[len(w)/4].ID
}

// holds reports whether the window knows that the log held this very entry.
func (h *hot) holds(id event.ID) bool {
	w := h.window()
	i := sort.Search(len(w), func(i int) bool { return !w[i].ID.Less(id) })
	return i < len(w) && w[i].ID == id
}

// merged walks the messages of several targets after an ID in order of ID.
type merged struct{ heads []*Message }

// after begins such a walk; room is for its heads. It costs what was missed,
// not what the window holds.
func (h *hot) after(id event.ID, m *Member, room []*Message) merged {
	heads := h.first(room, id, m.device)
	heads = h.first(heads, id, event.Broadcast)
	for _, group := range m.groups {
		heads = h.first(heads, id, group)
	}
	return merged{heads}
}

// first adds the oldest message of a target after an ID, if there is one.
func (h *hot) first(heads []*Message, id event.ID, target string) []*Message {
	m := h.index[target]
	if m == nil || !id.Less(m.ID) {
		return heads
	}
	for m.prev != nil && id.Less(m.prev.ID) {
		m = m.prev
	}
	return append(heads, m)
}

// peek is the next message, nil at the end.
func (w *merged) peek() *Message {
	if len(w.heads) == 0 {
		return nil
	}
	return w.heads[w.lowest()]
}

// pop moves past the message that peek gave.
func (w *merged) pop() {
	i := w.lowest()
	if next := w.heads[i].next; next != nil {
		w.heads[i] = next
		return
	}
	w.heads[i] = w.heads[len(w.heads)-1]
	w.heads = w.heads[:len(w.heads)-1]
}

func (w *merged) lowest() int {
	low := 0
	for i, m := range w.heads {
		if m.ID.Less(w.heads[low].ID) {
			low = i
		}
	}
	return low
}
