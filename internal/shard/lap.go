package shard

import (
	"context"
	"errors"
	"slices"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Run makes the laps of this shard until ctx ends: it waits until members
// want something older than the hot window, and reads the log once for all of
// them. One lap is in flight at a time.
func (s *Shard) Run(ctx context.Context) {
	retry := backoff.Backoff{Base: 50 * time.Millisecond, Max: 2 * time.Second}
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		err := s.permitted(ctx, s.lap)
		if err == nil {
			failures = 0
			continue
		}
		// The log is away, or moved. The members keep their place; nobody is
		// told anything that isn't known.
		if !errors.Is(err, errMoved) {
			s.opts.Metrics.LapFailures.Inc()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry.Delay(failures)):
		}
		failures++
	}
}

// errMoved ends a lap in whose range entries were removed meanwhile. Its members
// are judged anew, after a moment.
var errMoved = errors.New("the log was swept past the lap")

// permitted runs a lap when one of the gateway's permits is free.
func (s *Shard) permitted(ctx context.Context, lap func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case s.permits <- struct{}{}:
	}
	defer func() { <-s.permits }()
	return lap(ctx)
}

// lap takes everybody who waits, judges them, and reads pages from the oldest
// read position among them until all are live. Nobody paces it: a member
// without room leaves with its read position and comes back with its Resume.
func (s *Shard) lap(ctx context.Context) error {
	members := s.takeWaiting()
	if len(members) == 0 {
		return nil
	}
	defer s.requeue(members)
	s.opts.Metrics.Laps.Inc()
	swept, err := s.judge(ctx, members)
	if err != nil {
		return err
	}
	for {
		after, upTo, proven, ok := s.span(members)
		if !ok {
			return nil
		}
		page, err := s.store.Range(ctx, s.number, after, upTo, s.opts.PageBytes)
		if err != nil {
			return err
		}
		s.opts.Metrics.LapPages.Inc()
		sound, err := s.contiguous(ctx, event.Max(after, swept), after, proven)
		if err != nil {
			return err
		}
		if !sound {
			return errMoved
		}
		s.deliverPage(members, page)
	}
}

func (s *Shard) takeWaiting() []*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.doubt {
		return nil
	}
	members := s.waiting
	s.waiting = nil
	kept := members[:0:0]
	for _, m := range members {
		if reason := m.reason; reason != "" {
			s.resyncLocked(m, reason, s.pos)
			continue
		}
		m.state = lapping
		kept = append(kept, m)
	}
	return kept
}

// requeue puts those whom the lap didn't serve back in front of the queue.
func (s *Shard) requeue(members []*Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members = slices.DeleteFunc(members, func(m *Member) bool { return m.state != lapping })
	for _, m := range members {
		m.state = queued
	}
	s.waiting = append(members, s.waiting...)
	s.wakeLocked()
}

// judge asks for each member whether it may go on from where it stands, and
// returns how far the sweep had come then: up to there the answers hold.
func (s *Shard) judge(ctx context.Context, members []*Member) (swept event.ID, err error) {
	s.mu.Lock()
	questions := questionsLocked(members, event.ID{})
	s.mu.Unlock()
	reasons, state, err := s.store.Judge(ctx, s.number, questions)
	if err != nil {
		return event.ID{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range members {
		if m.state == lapping && m.read == questions[i].Cursor {
			s.answerLocked(m, reasons[i], state)
		}
	}
	return state.Swept, nil
}

// questionsLocked asks for each member about its read position, or about least
// if that is later.
func questionsLocked(members []*Member, least event.ID) []eventlog.Question {
	questions := make([]eventlog.Question, len(members))
	targets := make([]string, 0, 2*len(members))
	for i, m := range members {
		before := len(targets)
		targets = m.appendTargets(targets)
		questions[i] = eventlog.Question{Cursor: event.Max(m.read, least), Targets: targets[before:len(targets):len(targets)]}
	}
	return questions
}

func (s *Shard) answerLocked(m *Member, reason event.Reason, state eventlog.State) {
	switch {
	case m.earliest:
		m.read = state.Swept // nothing before it is left; it begins with its first page
	case reason != "":
		// What the sweep took before the tail came by isn't delivered any more.
		s.resyncLocked(m, reason, event.Max(s.pos, state.Swept))
		return
	}
	m.reason = ""
	switch {
	case s.doubt:
	case !m.read.Less(s.pos): // another gateway was faster: it has all that we have
		m.state = live
	case !m.read.Less(s.hot.floor):
		s.fillLocked(m)
	}
}

// span is what the next page must cover: from the oldest read position to
// inside the hot window, which takes over there. proven is false if only members stand there
// that asked for whatever is left, and were promised nothing before it.
func (s *Shard) span(members []*Member) (after, upTo event.ID, proven, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after = event.MaxID
	for _, m := range members {
		if m.state != lapping || after.Less(m.read) {
			continue
		}
		if m.read.Less(after) {
			after, proven, ok = m.read, false, true
		}
		proven = proven || !m.earliest
	}
	return after, event.Max(after, s.hot.overlap(s.pos)), proven, ok && !s.doubt
}

// contiguous asks, after a page was read, whether something may have been
// removed from in front of the reader meanwhile: judged is how far the sweep
// may have come without harm. The position itself must still be proven, unless
// it is where "earliest" begins, which may be before all that is known.
func (s *Shard) contiguous(ctx context.Context, judged, after event.ID, proven bool) (bool, error) {
	reasons, state, err := s.store.Judge(ctx, s.number, []eventlog.Question{{Cursor: after}})
	if err != nil {
		return false, err
	}
	return (reasons[0] == "" || !proven) && state.Swept.Compare(judged) <= 0, nil
}

// deliverPage hands a page to those who are in the lap, without holding the
// lock for all of it.
func (s *Shard) deliverPage(members []*Member, page eventlog.Page) {
	var messages row
	keys := topicsOf(page.Entries)
	for entries := page.Entries; len(entries) > 0; {
		entries = entries[s.deliver(members, entries, keys, &messages):]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joinLocked(members, page.Through)
}

// deliver takes as many entries of a page as one lock is held for, one at least.
func (s *Shard) deliver(members []*Member, entries []eventlog.Entry, keys topics, messages *row) (taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for offers := 0; taken < min(len(entries), hold) && offers < hold; taken++ {
		if e := &entries[taken]; !faulty(e) {
			offers += s.deliverPastLocked(members, e, keys, messages)
		}
	}
	return taken
}

// deliverPastLocked offers an entry of the past to those in the lap whom it
// concerns, and says to how many. One that is needless moves them past it.
func (s *Shard) deliverPastLocked(members []*Member, e *eventlog.Entry, keys topics, messages *row) (offers int) {
	topic, needless := s.pastLocked(e, keys)
	var message *Message // made for the first who wants it: most want none of it
	offer := func(m *Member) {
		if m.state != lapping || !m.read.Less(e.ID) {
			return
		}
		offers++
		if needless {
			s.conflated(m)
			m.moved(e.ID)
			return
		}
		if message == nil {
			message = messages.message(e, s.sharedLocked(e))
			message.topic = topic
		}
		if !s.offer(m, message) {
			m.state = stalled // with the read position it has reached
			return
		}
		m.moved(e.ID)
	}
	if e.Event.Target != event.Broadcast {
		s.listenersLocked(e.Event.Target, offer)
		return offers
	}
	for _, m := range members {
		offer(m)
	}
	return offers
}

// joinLocked moves those who took the whole page to its end, and lets them go
// live where the hot window takes over, in one step with the dispatch.
func (s *Shard) joinLocked(members []*Member, through event.ID) {
	for _, m := range members {
		if m.state != lapping {
			continue
		}
		m.moved(event.Max(m.read, through))
		if !s.doubt && !m.read.Less(s.hot.floor) {
			s.fillLocked(m)
		}
	}
}
