package conn

import "sync"

// A queue holds the connections that have something to do, each at most once
// (light.news sees to that). Safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	some    sync.Cond // on mu
	waiting int       // takers that sleep
	items   []*light
	head    int
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.some.L = &q.mu
	return q
}

func (q *queue) push(c *light) {
	q.mu.Lock()
	q.items = append(q.items, c)
	// A few are for one taker: waking another costs as much as writing to them.
	n := len(q.items) - q.head
	wake := q.waiting > 0 && (n == 1 || n > writerShare)
	q.mu.Unlock()
	if wake {
		q.some.Signal()
	}
}

// take waits for connections and appends a few of them, oldest first. It
// returns none once the queue is closed and empty.
func (q *queue) take(dst []*light, most int) []*light {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == len(q.items) && !q.closed {
		q.waiting++
		q.some.Wait()
		q.waiting--
	}
	n := min(most, len(q.items)-q.head)
	dst = append(dst, q.items[q.head:q.head+n]...)
	clear(q.items[q.head : q.head+n])
	q.head += n
	q.compact()
	return dst
}

// compact gives the room of those taken back, also if the queue never empties.
func (q *queue) compact() {
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > keptQueue {
			q.items = nil // a crowd has passed
		}
	case q.head > keptQueue && q.head > len(q.items)/2:
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// keptQueue is how many places an empty queue keeps.
const keptQueue = 1024

// close lets takers return once the queue is empty.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.some.Broadcast()
}
