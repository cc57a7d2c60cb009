package lease

import (
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/ring"
)

// A phase is where this member stands with a shard.
type phase int

const (
	free     phase = iota // not ours
	held                  // ours; past its deadline too, until another has it
	letting               // Let is running
	dropping              // Let has returned; to be released
)

// A shard is what a member knows of one. Owned by Run.
type shard struct {
	index int
	phase phase
	held  uint64 // the generation; if free, of the last lease that we had: the next is above it
	lost  bool   // while letting: there is nothing to release
	// lapsed is true from when the deadline has passed until the next renewal.
	lapsed bool
	// moved is when it was released for another member, who hasn't taken it yet.
	moved time.Time
	// stray is the generation of a lease that is ours without our wish: what was
	// asked for was granted after we had stopped waiting for it, or a server
	// came back with what was true before.
	stray uint64
	// As the keeper said it last.
	heard      bool // it has said something
	owner      string
	generation uint64
	past       ring.Shard // without the owner
}

// ask is what is to be asked about a shard now. floor is a generation that a
// device has seen.
func (m *Member) ask(s *shard) eventlog.LeaseAsk {
	a := eventlog.LeaseAsk{Shard: s.index, Want: eventlog.LeaseLook, Held: s.held, Floor: max(s.held, m.seen[s.index].Load())}
	switch {
	case s.phase == held, s.phase == letting && !s.lost:
		a.Want = eventlog.LeaseKeep
	case s.phase == dropping:
		a.Want = eventlog.LeaseDrop
	case s.phase != free:
	case m.wants(s):
		a.Want = eventlog.LeaseTake
	case s.stray != 0:
		a.Want, a.Held = eventlog.LeaseDrop, s.stray
	}
	return a
}

func (m *Member) wants(s *shard) bool {
	return m.joined && !m.leaving && m.view.proposed[s.index] == m.who.Name && m.view.standing(s.index, m.opts.Settle)
}

// pressing reports whether an ask can't wait for the next renewal.
func (m *Member) pressing(a *eventlog.LeaseAsk) bool {
	switch a.Want {
	case eventlog.LeaseTake, eventlog.LeaseDrop:
		return true
	case eventlog.LeaseKeep:
		return a.Floor > a.Held
	}
	to := m.view.proposed[a.Shard]
	return to != "" && to != m.shards[a.Shard].owner // something moves
}

// picture is what is known of a shard, for the ring. What we have ourselves is
// ours, whatever the keeper may have lost.
func (m *Member) picture(s *shard) ring.Shard {
	p := s.past
	if p.Owner = s.owner; s.phase != free && !s.lost {
		p.Owner = m.who.Name
	}
	return p
}

// propose asks the ring anew; what it proposes now and didn't before counts
// from since on.
func (m *Member) propose(since time.Time) {
	if !m.informed() {
		return
	}
	shards := make([]ring.Shard, len(m.shards))
	for i := range m.shards {
		shards[i] = m.picture(&m.shards[i])
	}
	m.view.propose(m.opts.Owners(m.view.eligible, shards), since)
}

// informed reports whether the keeper has said something of every shard: what
// is unknown looks as if nobody had it.
func (m *Member) informed() bool {
	for i := range m.shards {
		if !m.shards[i].heard {
			return false
		}
	}
	return true
}

// heed takes over what the keeper said about a shard. Losses were heeded before.
func (m *Member) heed(s *shard, a *eventlog.LeaseAsk, state eventlog.LeaseState, sent time.Time) {
	s.heard, s.owner, s.generation = true, state.Owner, state.Generation
	s.past = ring.Shard{Last: state.Last, Was: state.Was, Since: state.Since}
	if s.owner != "" && s.owner != m.who.Name {
		s.moved = time.Time{}
	}
	switch a.Want {
	case eventlog.LeaseTake:
		if state.Mine {
			m.gain(s, state.Generation, sent)
		}
	case eventlog.LeaseDrop:
		s.stray = 0
		if s.phase == dropping {
			s.phase = free
		}
	case eventlog.LeaseLook:
		if s.phase == free && state.Mine {
			s.stray = state.Generation
		} else {
			s.stray = 0
		}
	case eventlog.LeaseKeep:
		m.kept(s, a, state, sent)
	}
}

// gain makes a shard ours.
func (m *Member) gain(s *shard, generation uint64, sent time.Time) {
	s.held, s.stray, s.lost, s.moved = generation, 0, false, time.Time{}
	m.metrics().taken.Inc()
	if m.leaving {
		s.phase = dropping // too late: nobody has begun with it
		return
	}
	s.phase = held
	m.grant(s, sent, true)
}

// kept notes that a lease was renewed, or taken again, or is no more.
func (m *Member) kept(s *shard, a *eventlog.LeaseAsk, state eventlog.LeaseState, sent time.Time) {
	again := state.Generation != s.held
	switch {
	case !state.Mine:
		s.lost = true // it was on its way out already
		if s.phase == dropping {
			s.phase = free
		}
		return
	case s.phase == free:
		s.stray = state.Generation // granted when we had let go
		return
	}
	s.held = state.Generation
	if again && a.Floor <= a.Held {
		m.count(LossGone)
	}
	if s.phase == held {
		m.grant(s, sent, again)
	}
}

// grant hands the lease out. Its time counts from before it was asked for, and
// ends a little early, so that it ends here first.
func (m *Member) grant(s *shard, sent time.Time, fresh bool) {
	l := Lease{Shard: s.index, Owner: m.who.Name, Generation: s.held, Deadline: sent.Add(m.opts.TTL - m.opts.TTL/20)}
	if fresh {
		m.opts.Took(l)
	}
	s.lapsed = false
	m.leases[s.index].Store(&l)
}

// lose lets go of a shard that is held.
func (m *Member) lose(s *shard, why Loss) {
	m.leases[s.index].Store(nil)
	s.phase, s.lost, s.lapsed = letting, why == LossTaken, false
	m.count(why)
	m.calls.Go(func() {
		m.opts.Let(m.lets, s.index, why)
		m.back <- func() { m.letGo(s, why) }
	})
}

// letGo notes that nothing of a shard will be written any more.
func (m *Member) letGo(s *shard, why Loss) {
	if s.lost {
		s.phase = free
		return
	}
	s.phase = dropping
	if why == LossMoved {
		s.moved = time.Now()
	}
	m.groupOf[s.index].hurry = true
}

func (m *Member) count(why Loss) { m.metrics().lost[why].Inc() }
