package dial

import "sync"

// A queue lets a bounded number of mailboxes have their turn at a time, those
// that have waited longest first. Those whose last attempt failed stand in a line
// of their own, and have half of the places at most: a device that is gone holds
// its place until the time limit, and many of them would hold all. It costs
// nothing while nobody waits.
type queue struct {
	limit func() int

	mu      sync.Mutex
	lines   [2]line // of those that are well, and of those in doubt
	working int
	doubted int // of those that work, how many are in doubt
}

// A line is of mailboxes that wait.
type line []*mailbox

func newQueue(limit func() int) *queue { return &queue{limit: limit} }

// add has a mailbox take its turn. It doesn't block.
func (q *queue) add(m *mailbox, doubt bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := 0
	if doubt {
		at = 1
	}
	q.lines[at] = append(q.lines[at], m)
	if q.working < q.limit() {
		q.working++
		go q.work()
	}
}

// work gives turns until nobody waits, or the limit was lowered.
func (q *queue) work() {
	doubt := false
	for {
		var m *mailbox
		if m, doubt = q.next(doubt); m == nil {
			return
		}
		m.turn()
	}
}

// next is the mailbox whose turn it is, and whether it is in doubt; nil ends the
// worker that asks. was says of which line his last one was: the other is first
// now, so that neither waits for ever.
func (q *queue) next(was bool) (m *mailbox, doubt bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if was {
		q.doubted--
	}
	most := q.limit()
	if q.working <= most {
		may := q.doubted < max(most/2, 1)
		if may && !was {
			m = q.lines[1].pop()
		}
		doubt = m != nil
		if m == nil {
			m = q.lines[0].pop()
		}
		if m == nil && may {
			m = q.lines[1].pop()
			doubt = m != nil
		}
	}
	switch {
	case m == nil:
		q.working--
	case doubt:
		q.doubted++
	}
	return m, doubt
}

// pop takes the first, or nil.
func (l *line) pop() *mailbox {
	if len(*l) == 0 {
		*l = nil // a crowd's room isn't kept
		return nil
	}
	m := (*l)[0]
	(*l)[0] = nil
	*l = (*l)[1:]
	return m
}
