package lobby

import "io"

// A Stage is how far a connection without a stream has come. It counts whole
// messages, not bytes: who sends a letter now and then comes no further.
type Stage int

// The stages.
const (
	Arrived Stage = iota // it has said nothing whole
	Greeted              // the message that begins a TLS handshake is here
	Secured              // that handshake is done
	Asked                // a request's header is here

	stages = iota
)

// Reach notes that a guest has come to a stage, where it waits behind those who
// came there before. No guest goes back: what it does again gains it nothing.
func (g *Guest) Reach(s Stage) {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	if s <= g.stage {
		return
	}
	queued := g.queued
	l.queues[g.stage].remove(g)
	g.stage = s
	if queued {
		l.queues[s].push(g)
	}
}

// makeRoomLocked picks guests to be cut, until there is room for so many more.
func (l *Lobby) makeRoomLocked(more int) (cut []io.Closer) {
	for bound := max(limit(l.opts.Waiting), 1); l.waiting+more > bound; {
		c := l.pickLocked()
		if c == nil {
			break
		}
		cut = append(cut, c)
	}
	return cut
}

// looked is among how many of those who wait longest is chosen.
const looked = 8

// pickLocked takes one guest out, to be cut. It is one of the stage at which most
// wait: so a flood, which stops at some point, displaces itself, and neither those
// who haven't come to that point nor those who are past it. There it is, of the
// few who have waited longest, the one whose address has most of those who wait:
// so a flood from one address displaces itself, before anybody who is merely slow.
func (l *Lobby) pickLocked() io.Closer {
	pick := l.longestLocked().first
	if pick == nil {
		return nil
	}
	g := pick
	for range looked - 1 {
		if g = g.next; g == nil {
			break
		}
		if g.crowd() > pick.crowd() {
			pick = g
		}
	}
	pick.cut = true
	l.unwaitLocked(pick)
	return pick.closer
}

// longestLocked is the queue of most guests; of equal ones that of the earlier
// stage.
func (l *Lobby) longestLocked() *queue {
	longest := &l.queues[0]
	for i := range l.queues {
		if q := &l.queues[i]; q.length > longest.length {
			longest = q
		}
	}
	return longest
}

// crowd is how many wait from a guest's address.
func (g *Guest) crowd() int {
	if g.from == nil {
		return 0
	}
	return g.from.waiting
}

// A queue is a list of guests, from who has waited longest.
type queue struct {
	first, last *Guest
	length      int
}

func (q *queue) push(g *Guest) {
	if g.queued || g.cut || g.closer == nil {
		return
	}
	g.queued, g.prev, g.next = true, q.last, nil
	if q.last == nil {
		q.first = g
	} else {
		q.last.next = g
	}
	q.last = g
	q.length++
}

func (q *queue) remove(g *Guest) {
	if !g.queued {
		return
	}
	if g.prev == nil {
		q.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		q.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	q.length--
	g.queued, g.prev, g.next = false, nil, nil
}
