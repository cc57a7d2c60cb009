// Package tail owns the positions: it reads the log from where it stands and
// pushes what it finds into the shards, one reader for each group of shards,
// with a watchdog beside each reader. It knows neither sessions nor frames. Its
// invariant: nothing is dispatched from a position that may no longer be
// joined to what was dispatched before.
package tail

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A Dispatcher takes what the tail finds. Methods for one shard are called
// one at a time.
type Dispatcher interface {
	// Start tells the position after which Dispatch begins.
	Start(shard int, at event.ID)
	// Dispatch hands over the next entries; it must not keep the slice.
	Dispatch(shard int, entries []eventlog.Entry)
	// Reset says that entries may have been lost: everybody is told, and
	// delivery goes on after at.
	Reset(shard int, at event.ID, reason event.Reason)
	// Overtaken says that the sweep has removed unread entries; whoever missed
	// one is told. It returns the position from which delivery goes on.
	Overtaken(ctx context.Context, shard int) (event.ID, error)
}

// Orders takes what the log says to the gateway itself: orders about devices.
// Its methods must not block; for one shard they are called one at a time.
type Orders interface {
	// Order hands over an order, after the entries that were read with it.
	Order(shard int, order eventlog.Control)
	// Doubt says that orders of a shard may have been missed.
	Doubt(shard int)
}

// A Source is the log as the tail needs it.
type Source interface {
	eventlog.Tailer
	Range(ctx context.Context, shard int, after, upTo event.ID, maxBytes int) (eventlog.Page, error)
}

// Options for a Tail.
type Options struct {
	// Window is how long the log keeps an entry. A reader that hasn't been at
	// the end of a shard for half of it must ask before it dispatches.
	Window time.Duration
	// Watch is how often the watchdog looks, jittered.
	Watch time.Duration
	// Pause is the longest wait between two reads while events are frequent;
	// 0: a reader never waits. It delays an event by so much at most; one that
	// this process appends less, if the log is an eventlog.Glancer.
	Pause   time.Duration
	Orders  Orders // nil: nobody obeys
	Metrics *Metrics
	Logger  *slog.Logger
}

// A Tail reads all groups of a log.
type Tail struct {
	readers []*reader
}

// New makes the tail of a log.
func New(source Source, to Dispatcher, opts Options) *Tail {
	t := &Tail{}
	groups, total := source.Groups(), 0
	for _, shards := range groups {
		total += len(shards)
	}
	for group, shards := range groups {
		r := newReader(source, to, opts, group, total, shards)
		t.readers = append(t.readers, r)
		if g, ok := source.(eventlog.Glancer); ok && opts.Pause > 0 {
			g.Follow(group, r)
		}
	}
	return t
}

// unheard takes orders for nobody.
type unheard struct{}

func (unheard) Order(int, eventlog.Control) {}
func (unheard) Doubt(int)                   {}

// Run reads until ctx ends, or until the log turns out to have another layout
// than this gateway, whose *eventlog.MismatchError it then returns. It returns
// when all that it started has ended.
func (t *Tail) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(t.readers))
	var wg sync.WaitGroup
	for i, r := range t.readers {
		wg.Go(func() {
			if errs[i] = r.run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Ready reports whether every shard has a position and no reader is stuck. A
// log that is away doesn't make a gateway unready that was ready before:
// nobody can tell "away for everyone" from "I am cut off".
func (t *Tail) Ready() bool {
	for _, r := range t.readers {
		if !r.ready() {
			return false
		}
	}
	return true
}

// Away lists the shards whose log couldn't be read for so long.
func (t *Tail) Away(after time.Duration) (shards []int) {
	for _, r := range t.readers {
		if r.awayFor(after) {
			shards = append(shards, r.shards...)
		}
	}
	return shards
}
