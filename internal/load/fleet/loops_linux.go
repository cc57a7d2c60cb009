package fleet

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// loops drives the devices by lanes, each around an epoll of its own.
type loops struct {
	lanes   []*loop
	running sync.WaitGroup
}

func newLoops(o Options, settled func(n int)) (*loops, error) {
	l := &loops{}
	for lane := range o.Lanes {
		one, err := newLoop(o, lane, settled)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("preparing to read many connections: %w", err)
		}
		l.lanes = append(l.lanes, one)
		l.running.Go(one.run)
	}
	return l, nil
}

func (l *loops) connect(device int) { l.of(device).order(order{device: device, what: toConnect}) }

func (l *loops) disconnect(device int) { l.of(device).order(order{device: device, what: toDisconnect}) }

func (l *loops) wake(device int) { l.of(device).order(order{device: device, what: toWake}) }

func (l *loops) of(device int) *loop { return l.lanes[device%len(l.lanes)] }

func (l *loops) do(f func(int)) {
	done := make(chan struct{})
	for _, lane := range l.lanes {
		lane.order(order{what: toCall, call: func() {
			f(lane.number)
			done <- struct{}{}
		}})
		<-done
	}
}

func (l *loops) close() {
	for _, lane := range l.lanes {
		lane.order(order{what: toEnd})
	}
	l.running.Wait()
}

// An order is what a loop is told from outside.
type order struct {
	device int
	what   int8
	call   func()
}

const (
	toConnect int8 = iota
	toDisconnect
	toWake
	toCall
	toEnd
)

// An inbox holds a loop's orders until it takes them.
type inbox struct {
	mu     sync.Mutex
	orders []order
	wake   int // an eventfd
}

func (i *inbox) order(o order) {
	i.mu.Lock()
	i.orders = append(i.orders, o)
	first := len(i.orders) == 1
	i.mu.Unlock()
	if first {
		_, _ = unix.Write(i.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // can only fail when the counter is full, and then it is awake
	}
}

// take returns the orders so far; spare becomes the room for further ones.
func (i *inbox) take(spare []order) []order {
	var b [8]byte
	_, _ = unix.Read(i.wake, b[:])
	i.mu.Lock()
	defer i.mu.Unlock()
	taken := i.orders
	clear(spare)
	i.orders = spare[:0]
	return taken
}

// run reads, connects and ticks until it is told to end.
func (l *loop) run() {
	defer l.release()
	events := make([]unix.EpollEvent, 512)
	var taken []order
	next := time.Now().Add(tick)
	for {
		wait := max(0, time.Until(l.until(next)))
		n, err := unix.EpollWait(l.epoll, events, int((wait+time.Millisecond-1)/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(fmt.Sprintf("epoll_wait on an epoll of our own: %v", err)) // EBADF, EFAULT, EINVAL: a fault of this program
		}
		l.now = time.Now()
		for i := range max(n, 0) {
			if events[i].Fd == wakeSlot {
				taken = l.inbox.take(taken)
				if !l.obey(taken) {
					return
				}
			} else {
				l.ready(&events[i])
			}
		}
		l.moves()
		if !l.now.Before(next) {
			next = l.now.Add(tick)
			l.tick()
		}
		if l.decided > 0 {
			l.settled(l.decided)
			l.decided = 0
		}
	}
}

// until is the time of the next move or tick, whichever comes first.
func (l *loop) until(tick time.Time) time.Time {
	if len(l.agenda) > 0 && l.agenda[0].at < tick.UnixNano() {
		return time.Unix(0, l.agenda[0].at)
	}
	return tick
}

const tick = time.Second / ticksPerSecond

// obey returns false when the loop has to end.
func (l *loop) obey(orders []order) bool {
	for _, o := range orders {
		switch o.what {
		case toConnect:
			l.dial(o.device, true)
		case toDisconnect:
			if c := l.conn(o.device); c.state != closed {
				l.end(o.device, c, nil)
			}
		case toWake:
			l.awaken(o.device)
		case toCall:
			o.call()
		case toEnd:
			return false
		}
	}
	return true
}

func (l *loop) release() {
	for i := range l.conns {
		if l.conns[i].state != closed {
			_ = unix.Close(int(l.conns[i].fd))
		}
	}
	_ = unix.Close(l.wake)
	_ = unix.Close(l.epoll)
}
