package tail

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// reader follows one group of shards.
type reader struct {
	// Set at construction.
	source Source
	to     Dispatcher
	opts   Options
	group  int
	shards []int
	places []int // by shard: where it stands in shards; -1: not of this group
	log    *slog.Logger

	// Guarded by mu. Whoever dispatches or resets holds it, so that a position
	// and what its shard has seen move together.
	mu     sync.Mutex
	tracks []track // as in shards
	doubt  bool    // a read or an inspection failed: ask before anything is dispatched
	resets []reset // since they were last reported
	cancel context.CancelFunc
	pace   pace

	stuck atomic.Int32 // tracks that are stuck

	glances // what our appends read along
	meter   *meter

	// Guarded by health.
	health sync.Mutex
	begun  bool
	away   bool
	since  time.Time // when away has become true
}

// track is where the reader stands in one shard.
type track struct {
	pos     event.ID
	founded event.ID  // of the record that pos belongs to
	fresh   time.Time // when the shard was last seen to hold nothing unread
	behind  event.ID  // where it stood when the watchdog last found the head ahead of it
	idle    int       // rounds in a row in which the watchdog found it there
	drained bool      // the last read that was dispatched left nothing unread
	stuck   bool      // the read was begun anew for that, and pos hasn't moved since
	told    event.ID  // the head at which everybody was last told to resync
	looked  event.ID  // where it stood at the last inspection that was acted on
}

func newReader(source Source, to Dispatcher, opts Options, group, total int, shards []int) *reader {
	places := slices.Repeat([]int{-1}, total)
	for i, s := range shards {
		places[s] = i
	}
	if opts.Orders == nil {
		opts.Orders = unheard{}
	}
	return &reader{
		source: source, to: to, opts: opts, group: group, shards: shards, places: places,
		log:    opts.Logger.With("group", group),
		tracks: make([]track, len(shards)),
		cancel: func() {},
		pace:   pace{most: opts.Pause},

		glances: newGlances(len(shards)),
		meter:   newMeter(len(shards)),
	}
}

// run returns nil when ctx has ended, or why the log can't be read for good.
func (r *reader) run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, 3) // one for each part
	for _, part := range []func(context.Context) error{r.watch, r.follow, r.advance} {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
	r.retire()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// final reports whether an error is none that passes: the log has another
// layout than this gateway, and whatever it wrote or read would be lost.
func final(err error) bool {
	_, ok := errors.AsType[*eventlog.MismatchError](err)
	return ok
}

// begin finds the heads. The positions are concrete IDs from the first read
// on: with several streams "$" loses what arrives between two reads.
func (r *reader) begin(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		asked := time.Now()
		found, err := r.source.Inspect(ctx, r.group, make([]event.ID, len(r.shards)))
		if err == nil {
			r.mu.Lock()
			for i, f := range found {
				r.tracks[i] = track{pos: f.State.Head, founded: f.State.Founded, fresh: asked, looked: f.State.Head}
				r.meter.begin(i, f)
				r.to.Start(r.shards[i], f.State.Head)
				r.opts.Orders.Doubt(r.shards[i])
			}
			r.mu.Unlock()
			r.set(func() { r.begun, r.away = true, false })
			return nil
		}
		if final(err) {
			return err
		}
		if !r.pause(ctx, err, attempt) {
			return nil
		}
	}
}

// follow reads and dispatches until ctx ends.
func (r *reader) follow(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		err := r.step(ctx)
		switch {
		case err == nil:
			if failures > 0 {
				r.missed()
			}
			failures = 0
			r.set(func() { r.away = false })
		case errors.Is(err, errRestarted):
		case final(err):
			return err
		default:
			r.doubtful()
			r.pause(ctx, err, failures)
			failures++
		}
	}
	return nil
}

// doubtful makes the reader ask before it dispatches: over a new connection
// another server may answer, and one that was demoted still answers reads.
func (r *reader) doubtful() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubt = true
}

// missed says that orders may have been lost with the connection: the server
// that answers now may be one that never had them, and nothing else shows it.
func (r *reader) missed() {
	for _, s := range r.shards {
		r.opts.Orders.Doubt(s)
	}
}

// errRestarted ends a read whose positions have changed under it.
var errRestarted = errors.New("the positions were reset")

// step is one read and what follows from it.
func (r *reader) step(ctx context.Context) error {
	readCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	after := r.readFrom(cancel)
	asked := time.Now()
	batches, err := r.source.Read(readCtx, r.group, after)
	if err != nil {
		if ctx.Err() == nil && readCtx.Err() != nil {
			return errRestarted
		}
		return err
	}
	if err := r.dispatch(ctx, after, asked, batches); err != nil {
		return err
	}
	r.rest(ctx)
	return nil
}

// readFrom is where a read begins that cancel ends.
func (r *reader) readFrom(cancel context.CancelFunc) []event.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel = cancel
	r.turn++
	return r.positionsLocked()
}

// rest waits until the next read is due. What is read along meanwhile may put
// that off.
func (r *reader) rest(ctx context.Context) {
	for left := r.left(); left > 0 && ctx.Err() == nil; left = r.left() {
		select {
		case <-ctx.Done():
		case <-time.After(left):
		}
	}
}

func (r *reader) left() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.pace.left(time.Now())
	r.resting = left > 0
	return left
}

func (r *reader) positionsLocked() []event.ID {
	positions := make([]event.ID, len(r.tracks))
	for i, t := range r.tracks {
		positions[i] = t.pos
	}
	return positions
}

// dispatch hands over what was read after the positions in after.
func (r *reader) dispatch(ctx context.Context, after []event.ID, asked time.Time, batches []eventlog.Batch) error {
	came := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, drained := sum(batches)
	r.pace.came(asked, came, entries, drained)
	if len(batches) > 0 && (r.doubt || r.staleLocked(batches) || asksToLook(batches)) {
		if err := r.inspectLocked(ctx); err != nil {
			return err
		}
		r.doubt = false
	}
	for i := range r.tracks {
		r.tracks[i].drained = true // unless a batch says otherwise
	}
	for _, b := range batches {
		i := r.places[b.Shard]
		t := &r.tracks[i]
		if t.drained = b.Drained; len(b.Entries) == 0 {
			continue
		}
		if t.pos != after[i] {
			t.drained = false // reset meanwhile: these entries don't join on
			continue
		}
		r.handLocked(i, b)
	}
	for i := range r.tracks {
		if r.tracks[i].drained {
			r.tracks[i].fresh = asked
		}
	}
	return nil
}

// sum is how many entries a read brought, and whether it left none unread.
func sum(batches []eventlog.Batch) (entries int, drained bool) {
	drained = true
	for _, b := range batches {
		entries += len(b.Entries)
		drained = drained && b.Drained
	}
	return entries, drained
}

// handLocked hands over entries that join on to the position of their shard.
func (r *reader) handLocked(i int, b eventlog.Batch) {
	orders := r.examine(b)
	r.to.Dispatch(b.Shard, b.Entries)
	for _, order := range orders {
		r.opts.Orders.Order(b.Shard, order)
	}
	r.tracks[i].pos = b.Entries[len(b.Entries)-1].ID
	r.meter.handed(i, len(b.Entries), r.tracks[i].pos)
	r.stuckLocked(i, false)
	r.opts.Metrics.dispatched(b, r.log)
}

// examine returns the orders among the entries, and marks what no device of the
// shard can be meant by: its producer counts with another number of shards, or
// another checksum.
func (r *reader) examine(b eventlog.Batch) (orders []eventlog.Control) {
	for i := range b.Entries {
		e := &b.Entries[i]
		device := e.Event.Target
		if e.Fault != "" || event.ToAll(device) || eventlog.AsksToLook(&e.Event) {
			continue
		}
		var order eventlog.Control
		if device == event.ControlTarget {
			var err error
			if order, err = eventlog.ReadControl(&e.Event); err != nil {
				e.Fault = eventlog.FaultControl
				continue
			}
			device = order.Device
		}
		switch {
		case event.Shard(device, len(r.places)) != b.Shard:
			e.Fault = eventlog.FaultShard
		case order.Kind != "":
			orders = append(orders, order)
		}
	}
	return orders
}

// asksToLook reports whether a break was recorded where the entries were stored.
// The watchdog's next round would be too late for a device that leaves before it:
// with an ID from after the break, no other gateway would tell it.
func asksToLook(batches []eventlog.Batch) bool {
	return slices.ContainsFunc(batches, func(b eventlog.Batch) bool {
		return slices.ContainsFunc(b.Entries, func(e eventlog.Entry) bool { return eventlog.AsksToLook(&e.Event) })
	})
}

// staleLocked reports whether the sweep may have removed something between a
// position and the entries that were read after it. It can't have if the shard
// was seen without unread entries less than a window ago: what came since is
// younger than the window. Half of it leaves room for clocks that run apart.
func (r *reader) staleLocked(batches []eventlog.Batch) bool {
	for _, b := range batches {
		if len(b.Entries) > 0 && elapsed(r.tracks[r.places[b.Shard]].fresh) > r.opts.Window/2 {
			return true
		}
	}
	return false
}

// elapsed is the larger of what the monotonic and the wall clock say: the
// monotonic one stands still while the machine sleeps.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// pause waits before the next attempt; false when ctx has ended.
func (r *reader) pause(ctx context.Context, err error, failures int) bool {
	if ctx.Err() != nil {
		return false
	}
	first := false
	r.set(func() { first, r.away = !r.away, true })
	r.opts.Metrics.ReadFailures.Inc()
	if first {
		r.log.Warn("the log can't be read; connections stay, delivery waits", "error", err)
	}
	retry := backoff.Backoff{Base: 50 * time.Millisecond, Max: 2 * time.Second}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(retry.Delay(failures)):
		return true
	}
}

func (r *reader) set(change func()) {
	r.health.Lock()
	defer r.health.Unlock()
	before := r.away
	change()
	if !before && r.away {
		r.since = time.Now()
	}
	if before && !r.away {
		r.log.Warn("the log can be read again")
	}
	r.opts.Metrics.reachable(r.group, !r.away)
}

// awayFor reports whether the log couldn't be read for so long.
func (r *reader) awayFor(after time.Duration) bool {
	r.health.Lock()
	defer r.health.Unlock()
	return r.away && elapsed(r.since) >= after
}

// stuckLocked notes whether a shard's position fails to follow its head.
func (r *reader) stuckLocked(i int, yes bool) {
	t := &r.tracks[i]
	if t.stuck == yes {
		return
	}
	t.stuck = yes
	if yes {
		r.stuck.Add(1)
	} else {
		r.stuck.Add(-1)
	}
}

func (r *reader) ready() bool {
	r.health.Lock()
	defer r.health.Unlock()
	return r.begun && r.stuck.Load() == 0
}
