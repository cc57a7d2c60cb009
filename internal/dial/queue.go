package dial

import "sync"

// A queue lets a bounded number of mailboxes have their turn at a time, those
// that have waited longest first. It costs nothing while nobody waits.
type queue struct {
	limit func() int

	mu      sync.Mutex
	waiting []*mailbox
	working int
}

func newQueue(limit func() int) *queue { return &queue{limit: limit} }

// add has a mailbox take its turn. It doesn't block.
func (q *queue) add(m *mailbox) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, m)
	if q.working < q.limit() {
		q.working++
		go q.work()
	}
}

// work gives turns until nobody waits, or the limit was lowered.
func (q *queue) work() {
	for m := q.next(); m != nil; m = q.next() {
		m.turn()
	}
}

// next is the mailbox whose turn it is; nil ends the worker that asks.
func (q *queue) next() *mailbox {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || q.working > q.limit() {
		q.working--
		if len(q.waiting) == 0 {
			q.waiting = nil // a crowd's room isn't kept
		}
		return nil
	}
	m := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	return m
}
