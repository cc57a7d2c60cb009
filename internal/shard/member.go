package shard

import (
	"slices"
	"time"

	"downlink/internal/event"
)

// A Subscriber is a session as its shard sees it. Its methods are called under
// the shard's lock, one at a time; they must not block and must not call back.
type Subscriber interface {
	// Offer hands over the next message. False means that there is no room
	// and nothing was taken; the subscriber is behind then, and calls
	// Member.Resume when it has room again.
	Offer(m *Message) bool
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
	shard   *Shard
	sub     Subscriber
	targets []string // device, Broadcast, the groups with prefix

	// Guarded by the shard's mutex.
	state state
	read  event.ID // while not live: everything for it up to here was offered
	start Start    // what it asked for, until a lap has answered
}

// Attach adds a subscriber. Its groups come without prefix. What it has missed
// is offered at once if the hot window holds it; otherwise a lap over the log
// does so. The error is ErrTooManyStreams.
func (s *Shard) Attach(sub Subscriber, device string, groups []string, start Start) (*Member, error) {
	m := &Member{shard: s, sub: sub, targets: targets(device, groups)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit := s.opts.StreamsPerDevice; limit > 0 && len(s.devices[device]) >= limit {
		return nil, ErrTooManyStreams
	}
	s.devices[device] = append(s.devices[device], m)
	for _, group := range m.targets[2:] {
		if s.groups[group] == nil {
			s.groups[group] = make(map[*Member]struct{})
		}
		s.groups[group][m] = struct{}{}
	}
	s.beginLocked(m, start)
	return m, nil
}

func targets(device string, groups []string) []string {
	list := make([]string, 0, 2+len(groups))
	list = append(list, device, event.Broadcast)
	for _, g := range groups {
		if t := event.GroupPrefix + g; !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

func (s *Shard) beginLocked(m *Member, start Start) {
	m.read, m.start = start.Cursor, start
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
// before its floor, and makes m live if there was room for all.
func (s *Shard) fillLocked(m *Member) {
	walk := s.hot.after(m.read, m.targets)
	for next := walk.peek(); next != nil; next = walk.peek() {
		if !s.offer(m, next) {
			m.state = stalled
			return
		}
		m.read, m.start = next.ID, Start{}
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
	device := m.targets[0]
	list := s.devices[device]
	if i := slices.Index(list, m); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if s.devices[device] = list; len(list) == 0 {
		delete(s.devices, device)
	}
	for _, group := range m.targets[2:] {
		delete(s.groups[group], m)
		if len(s.groups[group]) == 0 {
			delete(s.groups, group)
		}
	}
}
