package filelog

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// maxGroupBytes bounds one commit; what waits longer goes into the next.
const maxGroupBytes = 8 << 20

// A request is one call of Append. The writer fills results and closes done.
type request struct {
	ctx     context.Context
	appends []eventlog.Append
	results []eventlog.Result
	done    chan struct{}
}

// A job is anything else that writes. The writer runs it between two commits.
type job struct {
	run  func() error
	done chan error
}

// Append stores each Append's events durably; it returns after the sync. The
// events may still be read after a call that ended with its context: they must
// not be changed any more.
func (l *Log) Append(ctx context.Context, batch []eventlog.Append) []eventlog.Result {
	r := &request{ctx: ctx, appends: batch, done: make(chan struct{})}
	select {
	case <-l.closing: // before the other channels, which could be ready as well
		return failAll(batch, eventlog.ErrClosed)
	default:
	}
	select {
	case l.appends <- r:
	case <-l.closing:
		return failAll(batch, eventlog.ErrClosed)
	case <-ctx.Done():
		return failAll(batch, late(ctx))
	}
	select {
	case <-r.done:
		return r.results
	case <-ctx.Done():
		return failAll(batch, late(ctx))
	}
}

func late(ctx context.Context) error {
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, context.Cause(ctx))
}

func failAll(batch []eventlog.Append, err error) []eventlog.Result {
	results := eventlog.NewResults(batch)
	for i := range results {
		results[i].Err = err
	}
	return results
}

// fail makes a result one of an Append that wasn't stored.
func fail(r *eventlog.Result, err error) {
	clear(r.IDs)
	r.Repeated, r.Err = false, err
}

// do runs a job on the writer and returns its error.
func (l *Log) do(ctx context.Context, run func() error) error {
	j := &job{run: run, done: make(chan error, 1)}
	select {
	case l.jobs <- j:
	case <-l.closing:
		return eventlog.ErrClosed
	case <-ctx.Done():
		return late(ctx)
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return late(ctx)
	}
}

// write is the only goroutine that writes: what it reads while it decides
// can't change under it. It finishes what it has taken, then ends.
func (l *Log) write() {
	for {
		select {
		case <-l.closing:
			return
		case j := <-l.jobs:
			j.done <- j.run()
		case r := <-l.appends:
			l.store(l.gather(r))
		}
	}
}

// gather takes what waits already and waits for nothing: while one group is on
// its way to the disk, the next one comes together by itself.
func (l *Log) gather(first *request) []*request {
	// Lets those that the last group has just answered come back with more.
	runtime.Gosched()
	group, size := []*request{first}, first.size()
	for size < maxGroupBytes {
		select {
		case r := <-l.appends:
			group, size = append(group, r), size+r.size()
		default:
			return group
		}
	}
	return group
}

func (r *request) size() int {
	n := 0
	for _, a := range r.appends {
		for i := range a.Events {
			n += len(a.Events[i].Payload)
		}
	}
	return n
}

// store answers a group of requests with one sync.
func (l *Log) store(requests []*request) {
	g := l.newGroup()
	defer g.batch.Close()
	for _, r := range requests {
		r.results = g.addAll(r)
	}
	if err := g.commit(); err != nil {
		for _, r := range requests {
			g.retract(r, err)
		}
	}
	for _, r := range requests {
		close(r.done)
	}
}

// A group is what goes to the disk with one sync.
type group struct {
	log     *Log
	number  uint64
	batch   *pebble.Batch
	wall    uint64 // ms, for IDs
	now     uint64 // ms of the log's clock, for idempotency keys
	events  int
	touched []*shard
	pending map[string]stored // idempotency keys that are decided in this group; may be nil
}

func (l *Log) newGroup() *group {
	l.groups++
	return &group{
		log: l, number: l.groups, batch: l.db.NewBatch(),
		wall: unixMillis(l.opts.Now()), now: l.clock(),
	}
}

func (g *group) addAll(r *request) []eventlog.Result {
	if err := g.refusal(r); err != nil {
		return failAll(r.appends, err)
	}
	results := eventlog.NewResults(r.appends)
	for i := range r.appends {
		g.add(&r.appends[i], &results[i])
	}
	return results
}

// refusal is why nothing of a request may be stored, if so.
func (g *group) refusal(r *request) error {
	if err := g.log.failed.Load(); err != nil {
		return err
	}
	if r.ctx.Err() != nil {
		return late(r.ctx) // its caller has gone, and was told that nothing is claimed
	}
	return g.log.room()
}

func (g *group) add(a *eventlog.Append, r *eventlog.Result) {
	s, err := g.log.shard(a.Shard)
	if err != nil {
		fail(r, err)
		return
	}
	most := g.log.opts.MaxEventBytes()
	for i := range a.Events {
		if n := len(a.Events[i].Payload); n > most {
			fail(r, fmt.Errorf("%w: %d bytes, allowed are %d", event.ErrTooLarge, n, most))
			return
		}
	}
	if a.Once != nil {
		g.addOnce(s, a, r)
		return
	}
	if err := g.fill(s, a.Events, r.IDs); err != nil {
		fail(r, err)
	}
}

// fill stores the events that have no ID yet.
func (g *group) fill(s *shard, events []event.Event, ids []event.ID) error {
	for i := range events {
		if !ids[i].IsZero() {
			continue
		}
		id, err := g.issue(s)
		if err != nil {
			return err
		}
		ids[i] = id
		e := &events[i]
		op := g.batch.SetDeferred(prefixLen+idBytes, eventSize(e))
		putEntryKey(op.Key, s.num, id)
		appendEvent(op.Value[:0], e)
		if err := op.Finish(); err != nil {
			return err
		}
		if err := s.coming.keep(id, op.Value, g.log.opts.MaxEventBytes(), g.log.freshBytes); err != nil {
			return err
		}
		g.events++
	}
	return nil
}

// issue gives out the next ID: never one that was given before, whatever the
// wall clock does.
func (g *group) issue(s *shard) (event.ID, error) {
	if s.issued == event.MaxID {
		return event.ID{}, eventlog.ErrExhausted
	}
	if s.group != g.number {
		s.group = g.number
		g.touched = append(g.touched, s)
	}
	s.issued = event.Max(event.ID{Ms: g.wall}, s.issued.Next())
	return s.issued, nil
}

// commit brings the group to the disk, and then shows it to the readers: the
// store itself would show it before the sync, and a crash could take back what
// a device has seen.
func (g *group) commit() error {
	if g.batch.Empty() {
		return nil
	}
	began := time.Now()
	if err := g.log.commit(g.batch, pebble.Sync); err != nil {
		g.forget()
		return err
	}
	g.log.metrics.commitSeconds.Observe(time.Since(began).Seconds())
	g.log.metrics.commitEvents.Observe(float64(g.events))
	for _, s := range g.touched {
		s.mu.Lock()
		s.publishLocked(s.issued, g.log.freshBytes)
		s.mu.Unlock()
	}
	g.log.bell.ring()
	return nil
}

// forget drops what the group would have shown.
func (g *group) forget() {
	for _, s := range g.touched {
		s.coming = coming{}
	}
}

// retract turns the answers of a group that couldn't be stored into errors;
// repeats too, for they may stand on an entry of this very group.
func (g *group) retract(r *request, err error) {
	for i := range r.results {
		if r.results[i].Err == nil {
			fail(&r.results[i], err)
		}
	}
}
