package governor

import "slices"

// remembered is how many changes are kept for those who follow them: with two
// levers and a change every ten seconds at most, ten minutes.
const remembered = 128

// A history is the last changes, and who waits for the next. Guarded by its
// governor.
type history struct {
	changes []Change
	next    chan struct{} // closed when there is another
}

func (h *history) init() { h.next = make(chan struct{}) }

// add notes a change, and wakes who waits.
func (h *history) add(c Change) {
	c.Number = 1
	if n := len(h.changes); n > 0 {
		c.Number = h.changes[n-1].Number + 1
	}
	if len(h.changes) == remembered {
		h.changes = slices.Delete(h.changes, 0, 1)
	}
	h.changes = append(h.changes, c)
	close(h.next)
	h.next = make(chan struct{})
}

// Changes are those that are remembered after a number (0: all), in order, and
// what is closed when there is another. If the first isn't the number's next,
// those between aren't remembered any more.
func (g *Governor) Changes(after uint64) (changes []Change, more <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.history.changes {
		if c.Number > after {
			changes = append(changes, c)
		}
	}
	return changes, g.history.next
}
