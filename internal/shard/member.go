package shard

import (
	"slices"
	"time"

	"downlink/internal/event"
)

// A Subscriber is a session as its shard sees it. Its methods are called under
// the shard's lock, one at a time; they must not block and must not call back.
type Subscriber interface {
	// Offer hands over the next message. If it isn't taken there is no room; the
	// subscriber is behind then, and calls Member.Resume when it has room again.
	// replaced says that it dropped, for this one, an older message that was
	// pending and that this one Replaces. What isn't taken replaces nothing.
	Offer(m *Message) (taken, replaced bool)
	// Resync replaces everything that is pending by a resync frame; delivery
	// goes on after at. The device should wait for after before it fetches.
	Resync(reason event.Reason, at event.ID, after time.Duration)
}

// Start is where a member begins.
type Start struct {
	Cursor event.ID
	// Reason, if not empty, says why there is no cursor that could be served.
	Reason event.Reason
	// Earliest asks for all that the window holds, without a resync.
	Earliest bool
}

// state is how a member gets its messages.
type state uint8

const (
	live    state = iota // offered by Dispatch
	stalled              // had no room; waits for its Resume
	queued               // waits for the next lap
	lapping              // takes part in the running lap
	gone                 // detached
)

// A Member is a subscriber's place in its shard.
type Member struct {
	// Set at construction.
	shard  *Shard
	sub    Subscriber
	device string
	groups []string // with prefix, each once

	// Guarded by the shard's mutex.
	sibling  *Member      // the next one of the same device
	read     event.ID     // while not live: everything for it up to here was offered
	reason   event.Reason // why it has no cursor that could be served, until it was told
	earliest bool         // it asked for all that is left, and has begun with nothing yet
	state    state
	spared   uint32 // see Spared
}

// moved notes that everything up to an ID was offered.
func (m *Member) moved(to event.ID) { m.read, m.reason, m.earliest = to, "", false }

// Attach adds a subscriber. Its groups come without prefix. What it has missed
// is offered at once if the hot window holds it; otherwise a lap over the log
// does so. The error is ErrTooManyStreams.
func (s *Shard) Attach(sub Subscriber, device string, groups []string, start Start) (*Member, error) {
	m := &Member{shard: s, sub: sub, device: device, groups: groupTargets(groups)}
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := 0
	for other := s.devices[device]; other != nil; other = other.sibling {
		streams++
	}
	if limit := s.opts.StreamsPerDevice(); limit > 0 && streams >= limit {
		return nil, ErrTooManyStreams
	}
	m.sibling = s.devices[device]
	s.devices[device] = m
	s.members++
	for _, group := range m.groups {
		if s.groups[group] == nil {
			s.groups[group] = make(map[*Member]struct{})
		}
		s.groups[group][m] = struct{}{}
	}
	s.beginLocked(m, start)
	return m, nil
}

func groupTargets(groups []string) []string {
	if len(groups) == 0 {
		return nil
	}
	list := make([]string, 0, len(groups))
	for _, g := range groups {
		if t := event.GroupPrefix + g; !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// appendTargets adds all that the member listens to.
func (m *Member) appendTargets(dst []string) []string {
	return append(append(dst, m.device, event.Broadcast), m.groups...)
}

func (s *Shard) beginLocked(m *Member, start Start) {
	m.read, m.reason, m.earliest = start.Cursor, start.Reason, start.Earliest
	switch {
	case !s.started || s.doubt || start.Earliest:
		s.queueLocked(m)
	case start.Reason != "":
		s.resyncLocked(m, start.Reason, s.pos)
	case start.Cursor == s.hot.floor || s.hot.holds(start.Cursor):
		s.fillLocked(m)
	default:
		s.queueLocked(m)
	}
}

// fillLocked offers what the hot window holds after m.read, which must not be
// before its floor, and makes m live if there was room for all. It passes over
// what is needless: the newer one lies after m.read as well, so m gets it here,
// or later, or is told.
func (s *Shard) fillLocked(m *Member) {
	var room [4]*Message
	walk := s.hot.after(m.read, m, room[:0])
	for next := walk.peek(); next != nil; next = walk.peek() {
		if next.needless() {
			s.conflated(m)
		} else if !s.offer(m, next) {
			m.state = stalled
			return
		}
		m.moved(next.ID)
		walk.pop()
	}
	m.read = event.Max(m.read, s.pos)
	m.state = live
}

func (s *Shard) queueLocked(m *Member) {
	m.state = queued
	s.waiting = append(s.waiting, m)
	s.wakeLocked()
}

func (s *Shard) wakeLocked() {
	if !s.started || s.doubt || len(s.waiting) == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Resume goes on with a member that was behind and has room again. Call it
// without the subscriber's own lock.
func (m *Member) Resume() {
	s := m.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.state != stalled {
		return
	}
	if !s.doubt && !m.read.Less(s.hot.floor) {
		s.fillLocked(m)
		return
	}
	s.queueLocked(m)
}

// Subscribers are those of a device, as they are now.
func (s *Shard) Subscribers(device string) []Subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Subscriber
	for m := s.devices[device]; m != nil; m = m.sibling {
		list = append(list, m.sub)
	}
	return list
}

// Position is the ID up to which everything for this member has been offered;
// ok is false while it isn't live, when no position may be told to the device.
func (m *Member) Position() (id event.ID, ok bool) {
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	return event.Max(m.read, m.shard.pos), m.state == live && !m.shard.doubt
}

// Detach ends the membership. It compares the member's identity: a late end of
// an old connection never removes a new one. Calling it again does nothing.
func (m *Member) Detach() {
	s := m.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.state == gone {
		return
	}
	if m.state == queued {
		if i := slices.Index(s.waiting, m); i >= 0 {
			s.waiting = slices.Delete(s.waiting, i, i+1)
		}
	}
	m.state = gone
	s.members--
	s.forgetLocked(m)
}

// forgetLocked takes a member out of the indexes.
func (s *Shard) forgetLocked(m *Member) {
	if first := s.devices[m.device]; first != m {
		for first.sibling != m {
			first = first.sibling
		}
		first.sibling = m.sibling
	} else if m.sibling != nil {
		s.devices[m.sibling.device] = m.sibling
	} else {
		delete(s.devices, m.device)
	}
	m.sibling = nil
	for _, group := range m.groups {
		delete(s.groups[group], m)
		if len(s.groups[group]) == 0 {
			delete(s.groups, group)
		}
	}
}
