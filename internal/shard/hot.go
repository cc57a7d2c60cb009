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
	head    int // entries[head:] are in the window
	index   map[string]*chain
	bytes   int
	limit   int // bytes
}

// A chain links the messages of one target, oldest first.
type chain struct{ first, last *Message }

func newHot(limit int) hot {
	return hot{index: make(map[string]*chain), limit: limit}
}

// reset empties the window; it begins anew after floor.
func (h *hot) reset(floor event.ID) {
	*h = newHot(h.limit)
	h.floor = floor
}

// add appends the newest message and lets the oldest go while the window is
// over its limit: all of them, if the newest alone is larger than that.
func (h *hot) add(m *Message) {
	h.entries = append(h.entries, m)
	h.bytes += m.Size()
	if m.deliverable() {
		c := h.index[m.Event.Target]
		if c == nil {
			h.index[m.Event.Target] = &chain{m, m}
		} else {
			c.last.next = m
			c.last = m
		}
	}
	for h.bytes > h.limit {
		h.evict()
	}
}

func (h *hot) evict() {
	m := h.entries[h.head]
	h.entries[h.head] = nil
	h.head++
	h.bytes -= m.Size()
	h.floor = m.ID
	if m.deliverable() {
		c := h.index[m.Event.Target]
		if c.first = m.next; c.first == nil {
			delete(h.index, m.Event.Target)
		}
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

// holds reports whether the window knows that the log held this very entry.
func (h *hot) holds(id event.ID) bool {
	w := h.window()
	i := sort.Search(len(w), func(i int) bool { return !w[i].ID.Less(id) })
	return i < len(w) && w[i].ID == id
}

// merged walks the messages of several targets after an ID in order of ID.
type merged struct{ heads []*Message }

func (h *hot) after(id event.ID, targets []string) merged {
	heads := make([]*Message, 0, len(targets))
	for _, target := range targets {
		c := h.index[target]
		if c == nil || c.last.ID.Compare(id) <= 0 {
			continue
		}
		m := c.first
		for m.ID.Compare(id) <= 0 {
			m = m.next
		}
		heads = append(heads, m)
	}
	return merged{heads}
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
