package push

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"downlink/internal/problem"
)

const (
	// maxWaiting is how many pushes wait for one device's turn.
	maxWaiting = 16
	// slowAfter is from when on a device counts as doubtful.
	slowAfter = time.Second
	// doubtFor is how long, if it isn't pushed to.
	doubtFor = 10 * time.Minute
)

// turns say when a push may begin: so many at a time to a device, in the order
// in which they came, and so many in all. Devices that lately failed or were slow
// are doubtful, and have together half of all places: however many are dead, the
// others find the other half free.
type turns struct {
	// Set at construction.
	most, perDevice func() int
	wait            time.Duration
	metrics         *Metrics

	mu       sync.Mutex
	total    int // under way
	doubtful int // of these, to doubtful devices
	lanes    map[string]*lane
	doubts   map[string]time.Time // since when a device is doubtful
	swept    int                  // how many were left when old doubts were last removed
}

// A lane is a device that is being pushed to.
type lane struct {
	busy  int
	queue []chan struct{} // closed when it is its turn
}

func newTurns(o Options) *turns {
	return &turns{
		most: o.InFlight, perDevice: o.PerDevice, wait: o.Wait, metrics: o.Metrics,
		lanes: make(map[string]*lane), doubts: make(map[string]time.Time),
	}
}

func (t *turns) inFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// A turn is a push that is under way.
type turn struct {
	turns    *turns
	device   string
	doubtful bool // it has a place of those for doubtful devices
	began    time.Time
}

// take waits for the device's turn. The error is a *problem.Document, or
// ctx's.
func (t *turns) take(ctx context.Context, device string) (*turn, error) {
	if err := t.line(ctx, device); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, doubtful := t.doubts[device]
	most := max(t.most(), 1)
	switch {
	case t.total >= most:
		t.leave(device)
		return nil, problem.New(problem.PushFull, fmt.Sprintf("%d pushes are under way, and push_in_flight allows no more", t.total)).After(1)
	case doubtful && t.doubtful >= max(most/2, 1):
		t.leave(device)
		return nil, problem.New(problem.PushFull, fmt.Sprintf("%d pushes to devices that lately failed or were slow, as this one, are under way, and they may have half of push_in_flight", t.doubtful)).After(5)
	}
	t.total++
	if doubtful {
		t.doubtful++
	}
	t.metrics.inFlight.Set(float64(t.total))
	return &turn{turns: t, device: device, doubtful: doubtful, began: time.Now()}, nil
}

// line stands in line for a device.
func (t *turns) line(ctx context.Context, device string) error {
	t.mu.Lock()
	l := t.lanes[device]
	if l == nil {
		l = &lane{}
		t.lanes[device] = l
	}
	switch {
	case l.busy < max(t.perDevice(), 1) && len(l.queue) == 0:
		l.busy++
		t.mu.Unlock()
		return nil
	case len(l.queue) >= maxWaiting:
		t.mu.Unlock()
		return problem.New(problem.DeviceBusy, fmt.Sprintf("%d pushes wait for the device already", maxWaiting)).After(t.again())
	}
	mine := make(chan struct{})
	l.queue = append(l.queue, mine)
	t.mu.Unlock()
	t.metrics.waiting.Inc()
	defer t.metrics.waiting.Dec()
	limit := time.NewTimer(t.wait)
	defer limit.Stop()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		return t.giveUp(device, mine, ctx.Err())
	case <-limit.C:
		return t.giveUp(device, mine, problem.New(problem.DeviceBusy, fmt.Sprintf("an earlier push to the device has not ended within %s", t.wait)).After(t.again()))
	}
}

// again is after how many seconds a turn may be free.
func (t *turns) again() int { return max(1, int(t.wait/time.Second)) }

// giveUp leaves the line, unless its turn has come just now: then it counts.
func (t *turns) giveUp(device string, mine chan struct{}, why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[device]
	if l != nil {
		if i := slices.Index(l.queue, mine); i >= 0 {
			l.queue = slices.Delete(l.queue, i, i+1)
			return why
		}
	}
	return nil
}

// leave lets the next one have the device's turn. Under mu.
func (t *turns) leave(device string) {
	l := t.lanes[device]
	if len(l.queue) > 0 && l.busy <= max(t.perDevice(), 1) {
		close(l.queue[0])
		l.queue = slices.Delete(l.queue, 0, 1)
		return
	}
	if l.busy--; l.busy == 0 && len(l.queue) == 0 {
		delete(t.lanes, device)
	}
}

// done ends a push. failed says that the device wasn't reached, or said nothing.
func (u *turn) done(failed bool) {
	t := u.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if u.doubtful {
		t.doubtful--
	}
	if failed || time.Since(u.began) > slowAfter {
		t.doubts[u.device] = time.Now()
		t.sweep()
	} else {
		delete(t.doubts, u.device)
	}
	t.metrics.inFlight.Set(float64(t.total))
	t.metrics.doubtful.Set(float64(len(t.doubts)))
	t.leave(u.device)
}

// sweep forgets old doubts whenever they have doubled: devices that nobody pushes
// to any more would stay for ever. Under mu.
func (t *turns) sweep() {
	if len(t.doubts) < 2*t.swept+64 {
		return
	}
	for device, since := range t.doubts {
		if time.Since(since) > doubtFor {
			delete(t.doubts, device)
		}
	}
	t.swept = len(t.doubts)
}
