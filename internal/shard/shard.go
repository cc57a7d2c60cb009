// Package shard owns one ordered part of the log as a gateway sees it: the
// position up to which it was dispatched, the hot window in memory, and the
// members (sessions) that listen. It knows neither frames on a socket nor where
// entries come from. Its invariant: a member that is live has been offered
// everything for it up to the shard's position; one that isn't has a read
// position from which it goes on, and no third way to move exists.
package shard

import (
	"context"
	"errors"
	"sync"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// ErrTooManyStreams says that a device holds as many streams as it may here.
// The new one is refused, never an old one ended: two terminals with one ID
// would end each other for ever.
var ErrTooManyStreams = errors.New("the device already holds as many streams as streams_per_device allows")

// Options for a Set of shards.
type Options struct {
	Shards int
	// HotBytes is the memory of the hot window over all shards. It is asked at
	// each entry: a shard gives memory back with its next one.
	HotBytes func() int
	// StreamsPerDevice is asked at each attach. Nil, or 0: no limit.
	StreamsPerDevice func() int
	PageBytes        int // of one read of the past
	MaxLaps          int // reads of the past in flight over all shards
	Pacer            *Pacer
	Metrics          *Metrics
}

// Shard is one part of the log. Safe for concurrent use.
type Shard struct {
	// Set at construction.
	number  int
	store   eventlog.Store
	opts    Options
	permits chan struct{} // shared by all shards: laps in flight
	wake    chan struct{} // capacity one: somebody waits for a lap

	// Guarded by mu, which is taken before a session's.
	mu      sync.Mutex
	started bool     // the tail has told the first position
	doubt   bool     // the sweep overtook the tail; nothing may go live unjudged
	pos     event.ID // everything up to here was dispatched
	hot     hot
	devices map[string]*Member // the latest of each device; the others hang behind it
	members int
	groups  map[string]map[*Member]struct{} // by target, with prefix
	waiting []*Member                       // for the next lap
}

func newShard(number int, store eventlog.Store, opts Options, permits chan struct{}) *Shard {
	if opts.StreamsPerDevice == nil {
		opts.StreamsPerDevice = func() int { return 0 }
	}
	return &Shard{
		number:  number,
		store:   store,
		opts:    opts,
		permits: permits,
		wake:    make(chan struct{}, 1),
		hot:     newHot(),
		devices: make(map[string]*Member),
		groups:  make(map[string]map[*Member]struct{}),
	}
}

// hotLimit is the shard's part of the hot window's memory.
func (s *Shard) hotLimit() int { return max(s.opts.HotBytes()/s.opts.Shards, 1) }

// Start tells the position from which the tail reads on. Until then, and
// again after each later call, nothing before it is in the hot window.
func (s *Shard) Start(at event.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.pos = at
	s.hot.reset(at)
	s.wakeLocked()
}

// Dispatch takes the next entries from the tail: into the hot window, and to
// the live members that they concern. It must be called once at a time.
func (s *Shard) Dispatch(entries []eventlog.Entry) {
	for len(entries) > 0 {
		entries = entries[s.dispatch(entries):]
	}
}

// hold is how many entries are dispatched, or messages offered, under one lock
// before whoever attaches meanwhile gets it: some 20 µs.
const hold = 64

// dispatch takes as many entries as one lock is held for, one at least.
func (s *Shard) dispatch(entries []eventlog.Entry) (taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for offers := 0; taken < min(len(entries), hold) && offers < hold; taken++ {
		e := &entries[taken]
		if !s.pos.Less(e.ID) {
			continue
		}
		m := s.hot.row.message(e, s.sharedLocked(e))
		s.hot.add(m, keyOf(e), s.hotLimit())
		if !m.faulty {
			offers += s.deliverLocked(m)
		}
		s.pos = m.ID
	}
	return taken
}

// sharedLocked reports whether several sessions may write an entry. One for a
// device with one stream is encoded as it is written, and again if that device
// comes back for it: kept encoded, it would take its room twice.
func (s *Shard) sharedLocked(e *eventlog.Entry) bool {
	first := s.devices[e.Event.Target]
	return event.ToAll(e.Event.Target) || first != nil && first.sibling != nil
}

// deliverLocked offers a message to all whom it concerns, and says to how many.
func (s *Shard) deliverLocked(m *Message) (offers int) {
	s.listenersLocked(m.Target, func(member *Member) {
		offers++
		s.offerLocked(member, m)
	})
	return offers
}

// listenersLocked calls do for each member that listens to a target.
func (s *Shard) listenersLocked(target string, do func(*Member)) {
	switch {
	case target == event.Broadcast:
		s.everyoneLocked(do)
	case event.ToAll(target):
		for m := range s.groups[target] {
			do(m)
		}
	default:
		for m := s.devices[target]; m != nil; m = m.sibling {
			do(m)
		}
	}
}

func (s *Shard) everyoneLocked(do func(*Member)) {
	for _, m := range s.devices {
		for ; m != nil; m = m.sibling {
			do(m)
		}
	}
}

func (s *Shard) offerLocked(member *Member, m *Message) {
	if member.state != live || !member.read.Less(m.ID) {
		return // ahead of this gateway: it has this one already
	}
	if !s.offer(member, m) {
		member.read = s.pos // the position before m
		member.state = stalled
		s.opts.Metrics.Behind.Inc()
	}
}

// offer hands a message over if there is room. One that is too large becomes a
// resync frame in its place.
func (s *Shard) offer(member *Member, m *Message) bool {
	taken, replaced := member.sub.Offer(m)
	if !taken {
		return false
	}
	if replaced {
		s.conflated(member)
	}
	if m.TooLarge {
		s.opts.Metrics.resync(event.EventTooLarge)
	}
	return true
}

// Reset tells every member that the log can't prove what it missed, and goes
// on from at.
func (s *Shard) Reset(at event.ID, reason event.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started, s.doubt = true, false
	s.pos = at
	s.hot.reset(at)
	s.everyoneLocked(func(m *Member) { s.resyncLocked(m, reason, at) })
	s.waiting = nil
}

// Overtaken judges every member after the sweep has removed entries that this
// gateway never read, and goes on after what was removed, from the ID that it
// returns. On an error nothing has moved, and it must be called again before
// anything is dispatched.
func (s *Shard) Overtaken(ctx context.Context) (event.ID, error) {
	s.mu.Lock()
	s.doubt = true // whoever attaches now, waits and is judged as well
	pos := s.pos
	members := make([]*Member, 0, s.members)
	s.everyoneLocked(func(m *Member) {
		if m.state == live { // else it stands before the new floor: the next lap asks for it
			members = append(members, m)
		}
	})
	questions := questionsLocked(members, pos)
	s.mu.Unlock()

	reasons, state, err := s.store.Judge(ctx, s.number, questions)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return pos, err
	}
	s.doubt = false
	s.pos = event.Max(pos, state.Swept)
	s.hot.reset(s.pos)
	for i, m := range members {
		if reasons[i] != "" && m.state == live {
			s.resyncLocked(m, reasons[i], s.pos)
		}
	}
	s.wakeLocked()
	return s.pos, nil
}

func (s *Shard) resyncLocked(m *Member, reason event.Reason, at event.ID) {
	m.moved(at)
	m.state = live
	m.sub.Resync(reason, at, s.opts.Pacer.Delay())
	s.opts.Metrics.resync(reason)
}

// Position is the ID up to which the shard was dispatched.
func (s *Shard) Position() event.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pos
}
