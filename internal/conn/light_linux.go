package conn

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Light is the driver for tens of thousands of connections. It takes an
// HTTP/1.1 connection over after the handshake: from then on it is a
// descriptor in an epoll set and a place in a wheel. A few writers do
// non-blocking writes, each gathering what is pending for a connection into
// one system call; a full socket waits for room without holding a writer. What
// can't be taken over (HTTP/2, HTTP/1.0) gets an Ordinary connection.
type Light struct {
	// Set at construction.
	ordinary  Ordinary
	tick      time.Duration // of the wheel
	keep      int64         // ticks until a keep-alive is due
	limit     int64         // ticks in which a peer must take something
	ready     *queue
	wheel     *wheel
	poller    *poller
	stop      chan struct{}
	scratches sync.Pool      // of *scratch, for those who begin a connection
	ended     sync.WaitGroup // writers, poller, wheel

	ticks atomic.Int64 // now, as coarse as is good enough

	// Guarded by mu.
	mu      sync.Mutex
	open    int // connections
	closing bool
	cutting bool
	none    chan struct{} // closed when open is zero and closing
}

// NewLight starts the driver; Close ends it. An error means that the system
// refuses what the driver needs, which is one descriptor.
func NewLight(o Ordinary) (Driver, error) {
	p, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("watching connections with epoll: %w; the ordinary driver does without", err)
	}
	tick := min(max(min(o.KeepAlive, o.WriteTimeout)/32, time.Millisecond), 500*time.Millisecond)
	l := &Light{
		ordinary:  o,
		tick:      tick,
		keep:      max(int64(o.KeepAlive/tick), 1),
		limit:     max(int64(o.WriteTimeout/tick), 1),
		ready:     newQueue(),
		poller:    p,
		stop:      make(chan struct{}),
		scratches: sync.Pool{New: func() any { return newScratch() }},
		none:      make(chan struct{}),
	}
	l.wheel = newWheel(int(max(l.keep, l.probe())) + 2)
	for range runtime.GOMAXPROCS(0) {
		l.ended.Go(l.write)
	}
	l.ended.Go(p.run)
	l.ended.Go(l.turn)
	return l, nil
}

// New makes the connection of a request.
func (l *Light) New(r *http.Request) Conn {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return l.ordinary.New(r)
	}
	c := &light{driver: l, fd: -1, slot: -1}
	c.news.Store(busy) // until it is served, a wake is only noted
	return c
}

// Close implements Driver. Calling it again does nothing.
func (l *Light) Close(ctx context.Context) {
	if !l.shut() {
		return
	}
	select {
	case <-l.none:
	case <-ctx.Done():
		l.mu.Lock()
		l.cutting = true
		l.mu.Unlock()
		l.poller.each(func(c *light) { c.notify(cut) })
		<-l.none
	}
	close(l.stop)
	l.poller.close()
	l.ready.close()
	l.ended.Wait()
}

// shut lets no connection in any more; false if that was done before.
func (l *Light) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	l.closing = true
	if l.open == 0 {
		close(l.none)
	}
	return true
}

// enter counts a connection in; false if it comes too late.
func (l *Light) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	l.open++
	return true
}

// leave counts a connection out.
func (l *Light) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open--; l.open == 0 && l.closing {
		close(l.none)
	}
}

// isCutting says that a connection which came while others were cut is to be
// cut as well.
func (l *Light) isCutting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutting
}

// write is one writer.
func (l *Light) write() {
	s := newScratch()
	for {
		s.ready = l.ready.take(s.ready[:0], writerShare)
		if len(s.ready) == 0 {
			return
		}
		for i, c := range s.ready {
			s.ready[i] = nil
			c.run(s)
		}
	}
}

// writerShare is how many connections a writer takes at a time: enough to
// spare the queue's lock, few enough for the other writers to have work.
const writerShare = 16

// turn moves the wheel.
func (l *Light) turn() {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	began := time.Now()
	var late []*light
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		// A ticker drops ticks when the machine is busy; time doesn't.
		for l.ticks.Load() < int64(time.Since(began)/l.tick) {
			l.ticks.Add(1)
			late = l.wheel.turn(late[:0])
			for i, c := range late {
				late[i] = nil
				c.notify(due)
			}
		}
	}
}

// probe is how often, in ticks, a connection that takes nothing is looked at.
func (l *Light) probe() int64 { return max(l.limit/4, 1) }
