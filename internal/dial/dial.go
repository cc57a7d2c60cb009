// Package dial owns the devices that this process connects to: one link for
// each device of a shard that it holds, over a WebSocket that it keeps open or by
// one POST for each event. It doesn't decide which shards it holds (lease), which
// devices there are (inventory), or what a device has missed (session). Its
// invariant: an event is written only while the shard's lease lives, which every
// write is given as an argument; a link without one is held, and pinged.
package dial

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/inventory"
	"downlink/internal/lease"
	"downlink/internal/post"
	"downlink/internal/session"
	"downlink/internal/shard"
)

// A Transport is how a device gets its events.
type Transport string

// The transports.
const (
	Post      Transport = "post"
	WebSocket Transport = "websocket"
)

// Devices are the inventory, as it is now.
type Devices interface {
	Lookup(id string) (inventory.Device, bool)
	Of(shard int) iter.Seq[inventory.Device]
}

// Shards finds the shard of a device.
type Shards interface {
	Of(device string) *shard.Shard
}

// A Poster sends one event to one device.
type Poster interface {
	Post(ctx context.Context, d inventory.Device, e post.Event) (*post.Reply, error)
}

// Options for an Engine.
type Options struct {
	Transport Transport
	Member    string // as it names itself to devices; empty: it doesn't
	Shards    int    // in the log

	Devices   Devices
	Log       Shards
	Positions eventlog.Positioner
	// Lease is the present lease of a shard; false if there is none.
	Lease func(shard int) (lease.Lease, bool)
	// Outranked is told of a generation that a device knows and that is higher
	// than ours. Nil: nobody is.
	Outranked func(shard int, generation uint64)
	Revoked   func(device string) bool

	// Client makes the requests by which a WebSocket begins, with what a
	// credential of the inventory stands for. For WebSocket alone.
	Client func(credential string) *http.Client
	// Poster is for Post alone.
	Poster Poster

	Session   session.Options // its bounds of what waits
	Rate      func() int      // dials a second
	Sockets   func() int      // WebSockets at the same time
	InFlight  func() int      // POSTs at the same time
	Window    time.Duration   // of the log
	Keepalive time.Duration
	// WriteTimeout is how long a device may take nothing of a message, or leave a
	// ping without a pong. A long message has it for each 64 KiB.
	WriteTimeout time.Duration
	DialTimeout  time.Duration // of each step: address, connection, TLS, upgrade, hello
	Backoff      backoff.Backoff

	// Note is told what became of a device, for people who ask. Nil: nobody is.
	Note    func(device, word, detail string)
	Metrics *Metrics
	Logger  *slog.Logger
}

// An Engine keeps the links of the shards that it was given. Safe for concurrent use.
type Engine struct {
	// Set at construction.
	opts    Options
	pace    *pacer
	queue   *queue        // of what has something to post
	grace   time.Duration // how long a link may take to end in order
	sockets atomic.Int64  // WebSockets that are open or being opened
	unsure  atomic.Bool   // positions couldn't be read when that was last tried

	mu   sync.Mutex
	held []*holding // by shard; nil: it isn't ours
}

// New makes an engine without a shard.
func New(o Options) *Engine {
	o.Session.JSON = o.Transport == WebSocket
	if o.Transport == Post {
		// One is on its way at a time, and the log is the queue: thousands of
		// devices that can't be reached must not hold thousands of events each.
		o.Session.MaxPending = func() int { return postPending }
	}
	o.Session.Goodbye = func() time.Duration { return o.Backoff.Delay(0) }
	e := &Engine{opts: o, held: make([]*holding, o.Shards), pace: newPacer(o.Rate), grace: grace}
	e.queue = newQueue(o.InFlight)
	return e
}

const (
	// postPending is how many events wait in memory for a device that gets POSTs.
	postPending = 16
	// glance is how often the engine looks whether a lease lives again.
	glance = 200 * time.Millisecond
	// keepEvery is how often positions are kept that devices have reached.
	keepEvery = time.Second
	// moveEvery is how often the positions of quiet devices are moved on, so that
	// they don't age: what is older than the window has to be asked for.
	moveEvery = 5 * time.Minute
)

// Run paces dials, wakes links whose lease lives again, and keeps positions,
// until ctx ends; then it returns nil. Links end by Let.
func (e *Engine) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { e.pace.run(ctx) })
	parts.Go(func() { e.each(ctx, glance, (*holding).look) })
	parts.Go(func() { e.each(ctx, keepEvery, func(h *holding) { h.keep(ctx) }) })
	if e.opts.Transport == Post {
		parts.Go(func() { e.each(ctx, moveEvery, (*holding).moveOn) })
	}
	parts.Wait()
	return nil
}

// each does something to every holding at each interval.
func (e *Engine) each(ctx context.Context, interval time.Duration, do func(*holding)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, h := range e.holdings() {
			do(h)
		}
	}
}

func (e *Engine) holdings() []*holding {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*holding, 0, len(e.held))
	for _, h := range e.held {
		if h != nil {
			list = append(list, h)
		}
	}
	return list
}

// Took says that a shard is ours, or that its lease has a new generation: then
// its links stay, and each device is told before its next event.
func (e *Engine) Took(l lease.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.held[l.Shard]; h != nil {
		h.generation.Store(l.Generation)
		return
	}
	h := newHolding(e, l)
	e.held[l.Shard] = h
	e.opts.Metrics.Shards.Inc()
	for d := range e.opts.Devices.Of(l.Shard) {
		h.doubt(d.ID)
	}
	h.begin()
}

// Let ends every link of a shard. It returns when nothing of it will be written,
// and what its devices have reached is kept; at the latest when ctx ends, which
// cuts what hasn't ended.
func (e *Engine) Let(ctx context.Context, shard int, why lease.Loss) {
	e.mu.Lock()
	h := e.held[shard]
	e.held[shard] = nil
	e.mu.Unlock()
	if h == nil {
		return
	}
	h.end(ctx)
	e.opts.Metrics.Shards.Dec()
	e.opts.Logger.Debug("a shard was let go of", "shard", shard, "why", why)
}

// Changed says that the inventory knows other things of some devices: only their
// links begin anew.
func (e *Engine) Changed(c inventory.Change) {
	for _, list := range [][]inventory.Device{c.Added, c.Changed, c.Removed} {
		for _, d := range list {
			e.mu.Lock()
			h := e.held[event.Shard(d.ID, e.opts.Shards)]
			e.mu.Unlock()
			if h != nil {
				h.doubt(d.ID)
			}
		}
	}
}

// Sockets is how many WebSockets are open, or being opened.
func (e *Engine) Sockets() int { return int(e.sockets.Load()) }

// takeSocket counts one more WebSocket, unless there are as many as may be.
func (e *Engine) takeSocket() bool {
	for {
		n := e.sockets.Load()
		if n >= int64(e.opts.Sockets()) {
			return false
		}
		if e.sockets.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// outranked hears of the generation that a device knows, if it says so.
func (e *Engine) outranked(shard int, text string) {
	generation, err := strconv.ParseUint(text, 10, 64)
	if err == nil && e.opts.Outranked != nil {
		e.opts.Outranked(shard, generation)
	}
}

// sayPositions tells whether positions can be read, once for all shards.
func (e *Engine) sayPositions(err error) {
	switch {
	case err != nil && e.unsure.CompareAndSwap(false, true):
		e.opts.Logger.Warn("the positions of devices can't be read yet, so nothing is sent to some; trying on", "error", err)
	case err == nil && e.unsure.CompareAndSwap(true, false):
		e.opts.Logger.Info("the positions of devices can be read again")
	}
}

func (e *Engine) note(device, word, detail string) {
	if e.opts.Note != nil {
		e.opts.Note(device, word, detail)
	}
}
