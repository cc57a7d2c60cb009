package lobby

import (
	"container/list"
	"math/bits"
	"runtime"
)

// A desk is where guests wait for the processor when the work that they make is
// dear: few work at a time, so that everybody else has a processor too, and so
// that who is cut while he waits has cost nothing.
type desk struct {
	most    int // that work at a time
	working int
	lines   [crowds]list.List // who waits, by how many came from there; the newest in front
}

const (
	// mostPerCore is how many work at a time for each processor: one, and one that
	// is there when it rests.
	mostPerCore = 2
	// crowds is how many sizes of crowds are told apart: each is twice the last.
	crowds = 24
)

func newDesk() desk { return desk{most: mostPerCore * runtime.GOMAXPROCS(0)} }

// Work waits until it is the guest's turn to use the processor, which Rest gives
// up; false if he was cut meanwhile, or has left. It is first the turn of those of
// whose address fewest are here: a flood waits behind everybody else. Of equal
// ones it is the newest's: while more come than can be served, those who are served
// are served at once, and no more would be in any other order.
func (g *Guest) Work() bool {
	l := g.lobby
	l.mu.Lock()
	if !g.working && !g.gone && !g.cut {
		if turn := l.desk.turn(g); turn != nil {
			l.mu.Unlock()
			<-turn
			l.mu.Lock()
		}
	}
	defer l.mu.Unlock()
	return g.working
}

// Rest gives the turn up; without one it does nothing.
func (g *Guest) Rest() {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.working {
		g.working = false
		l.desk.working--
		l.desk.next()
	}
}

// turn begins a guest's turn, or returns what is closed when it begins, or when
// he has left.
func (d *desk) turn(g *Guest) <-chan struct{} {
	if d.working < d.most {
		g.working = true
		d.working++
		return nil
	}
	g.turn = make(chan struct{})
	g.line = &d.lines[min(bits.Len(uint(g.crowd())), crowds-1)] //nolint:gosec // a count
	g.place = g.line.PushFront(g)
	return g.turn
}

// next begins a turn for one who waits, if somebody does.
func (d *desk) next() {
	for i := range d.lines {
		if first := d.lines[i].Front(); first != nil {
			g := first.Value.(*Guest) //nolint:forcetypeassert // nothing else is in it
			g.working = true
			d.working++
			d.leave(g)
			return
		}
	}
}

// leave takes a guest out of his line, if he is in one.
func (d *desk) leave(g *Guest) {
	if g.place == nil {
		return
	}
	g.line.Remove(g.place)
	g.line, g.place = nil, nil
	close(g.turn)
}
