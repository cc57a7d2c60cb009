package conn

import "sync"

// A wheel says when a connection is to be looked at again, for all of them
// with one clock: time is counted in ticks, and each slot holds the
// connections that are due at one of them. Safe for concurrent use.
type wheel struct {
	mu    sync.Mutex
	now   int64
	slots []*light // heads of doubly linked lists
}

func newWheel(slots int) *wheel { return &wheel{slots: make([]*light, slots)} }

// reach is how many ticks ahead a connection can be put.
func (w *wheel) reach() int64 { return int64(len(w.slots)) - 1 }

// put schedules c after so many ticks, at least one; a time that is out of
// reach becomes the farthest. It replaces an earlier one.
func (w *wheel) put(c *light, ticks int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(c)
	slot := (w.now + min(max(ticks, 1), w.reach())) % int64(len(w.slots))
	c.slot = int(slot)
	c.next = w.slots[slot]
	if c.next != nil {
		c.next.prev = c
	}
	w.slots[slot] = c
}

// remove forgets c.
func (w *wheel) remove(c *light) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(c)
}

func (w *wheel) unlink(c *light) {
	if c.slot < 0 {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		w.slots[c.slot] = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.slot, c.next, c.prev = -1, nil, nil
}

// turn moves on by one tick and appends to due those whose time has come;
// they are scheduled no more.
func (w *wheel) turn(due []*light) []*light {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	slot := w.now % int64(len(w.slots))
	for w.slots[slot] != nil {
		c := w.slots[slot]
		w.unlink(c)
		due = append(due, c)
	}
	return due
}
