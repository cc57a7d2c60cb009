package dial

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/inventory"
	"downlink/internal/lease"
	"downlink/internal/shard"
)

// A link is one device of a shard that we hold.
type link interface {
	// begin starts it. It doesn't block.
	begin()
	// wake says that it may be able to write again. It doesn't block.
	wake()
	// end ends it and returns when nothing of it will be written. What is under
	// way has until ctx ends.
	end(ctx context.Context, why End)
	// state is how it is, for people.
	state() State
}

// A holding is one shard that is ours, with its links.
type holding struct {
	// Set at construction.
	engine     *Engine
	shard      int
	ctx        context.Context // ends with it
	cancel     context.CancelFunc
	news       chan struct{} // capacity one: a device is in doubt
	done       sync.WaitGroup
	generation atomic.Uint64 // of the lease that was taken last
	starved    atomic.Bool   // somebody has found no lease that lives

	mu     sync.Mutex
	doubts map[string]struct{} // devices whose link may not be as the inventory says
	links  map[string]*entry
	reach  map[string]event.ID // positions that devices have reached, not yet kept

	keeping chan struct{} // holds one thing while positions are being kept
}

// An entry is a link and the device as it was when the link was made.
type entry struct {
	link
	device inventory.Device
}

func newHolding(e *Engine, l lease.Lease) *holding {
	h := &holding{
		engine: e, shard: l.Shard, news: make(chan struct{}, 1), keeping: make(chan struct{}, 1),
		doubts: make(map[string]struct{}), links: make(map[string]*entry), reach: make(map[string]event.ID),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.generation.Store(l.Generation)
	return h
}

func (h *holding) begin() { h.done.Go(h.follow) }

// lease is the shard's present one; false unless it lives.
func (h *holding) lease() (lease.Lease, bool) {
	l, ok := h.engine.opts.Lease(h.shard)
	if ok && l.Live(time.Now()) {
		return l, true
	}
	h.starved.Store(true) // look wakes whoever asked
	return l, false
}

// doubt has the link of a device made, made anew or ended, as the inventory says.
func (h *holding) doubt(device string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubts[device] = struct{}{}
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// follow brings links into line with the inventory until the holding ends. With
// Post a link begins where its device is known to have come, which the log has to
// be asked for, however long that takes.
func (h *holding) follow() {
	for attempt := 0; ; {
		select {
		case <-h.ctx.Done():
			return
		case <-h.news:
		}
		devices := h.takeDoubts()
		err := h.settle(devices)
		if h.ctx.Err() != nil {
			return
		}
		h.engine.sayPositions(err)
		if err == nil {
			attempt = 0
			continue
		}
		if !sleep(h.ctx, h.engine.opts.Backoff.Delay(attempt)) {
			return
		}
		attempt++
		for _, d := range devices {
			h.doubt(d)
		}
	}
}

func (h *holding) takeDoubts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]string, 0, len(h.doubts))
	for d := range h.doubts {
		list = append(list, d)
	}
	h.doubts = make(map[string]struct{}) // a crowd's room isn't kept
	return list
}

// settle brings the links of some devices into line with the inventory.
func (h *holding) settle(devices []string) error {
	h.dropOutdated(devices)
	var kept map[string]event.ID
	if h.engine.opts.Transport == Post {
		var err error
		if kept, err = h.positions(h.ctx, devices); err != nil {
			return err
		}
	}
	for _, id := range devices {
		d, listed := h.engine.opts.Devices.Lookup(id)
		if !listed || h.link(id) != nil {
			continue
		}
		start := shard.Start{Reason: event.NoCursor}
		if at, ok := h.reached(id, kept); ok {
			start = shard.Start{Cursor: at}
		}
		h.open(d, start)
	}
	return nil
}

// dropOutdated ends the links of those devices that the inventory knows otherwise.
func (h *holding) dropOutdated(devices []string) {
	var dropping sync.WaitGroup
	for _, id := range devices {
		d, listed := h.engine.opts.Devices.Lookup(id)
		if old := h.link(id); old != nil && !(listed && old.device.Equal(d)) {
			dropping.Go(func() { h.drop(id, old) })
		}
	}
	dropping.Wait()
}

func (h *holding) link(id string) *entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[id]
}

// drop ends the link of a device that the inventory doesn't know as it was.
func (h *holding) drop(id string, old *entry) {
	ctx, cancel := context.WithTimeout(h.ctx, h.engine.grace)
	defer cancel()
	old.end(ctx, Unlisted)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[id] == old {
		delete(h.links, id)
	}
}

// open begins the link of a device, unless the holding has ended.
func (h *holding) open(d inventory.Device, start shard.Start) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	var l link
	if h.engine.opts.Transport == WebSocket {
		l = newSocket(h, d)
	} else {
		l = newMailbox(h, d, start)
	}
	h.links[d.ID] = &entry{l, d}
	l.begin()
}

// all are the links that there are.
func (h *holding) all() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*entry, 0, len(h.links))
	for _, l := range h.links {
		list = append(list, l)
	}
	return list
}

// look wakes the links if somebody has waited for a lease, and there is one. It
// doesn't go by whether the last look found one: a lapse may be shorter.
func (h *holding) look() {
	l, ok := h.engine.opts.Lease(h.shard)
	if ok && l.Live(time.Now()) && h.starved.Swap(false) {
		for _, l := range h.all() {
			l.wake()
		}
	}
}

// grace is how long a link may take to end in order: to finish the POST that is
// under way, or to hear the device's goodbye.
const grace = time.Second

// end ends all links, and keeps what their devices have reached.
func (h *holding) end(ctx context.Context) {
	h.cancel()
	h.done.Wait()
	soon, cancel := context.WithTimeout(ctx, h.engine.grace)
	defer cancel()
	var ending sync.WaitGroup
	for _, l := range h.all() {
		ending.Go(func() { l.end(soon, Moved) })
	}
	ending.Wait()
	last, cancel := context.WithTimeout(ctx, h.engine.grace) // with Redis away it would take its time for each shard
	defer cancel()
	h.keep(last)
}

// moveOn notes how far quiet devices have come.
func (h *holding) moveOn() {
	for _, l := range h.all() {
		if m, ok := l.link.(*mailbox); ok {
			m.moveOn()
		}
	}
}

// sleep waits for d; false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
