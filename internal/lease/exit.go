package lease

import "time"

// exit is how far leaving has come. Owned by Run.
type exit struct {
	began     time.Time
	late      *time.Timer // ends the context of Let
	announced time.Time   // when the members were told; zero: not yet
	let       bool        // Let was called for every shard
	empty     time.Time   // since when nothing is ours to write; zero: something is
	haste     bool        // somebody has asked once more for the end
	done      bool        // every lease is released, or given up
	over      bool        // Run may return
}

// leave begins to leave.
func (m *Member) leave(now time.Time) {
	if m.leaving {
		return
	}
	m.leaving, m.exit.began = true, now
	m.presence.next = time.Time{}
	m.exit.late = time.AfterFunc(m.opts.Leave, m.endLets)
}

// depart goes on with leaving. The others are given the time to hear of it
// first: they are waiting for each shard then, when it is released.
func (m *Member) depart(now time.Time) {
	e := &m.exit
	if !m.leaving {
		return
	}
	if !e.let {
		alone := len(m.view.members) < 2 || m.failure != nil
		told := !e.announced.IsZero() && now.Sub(e.announced) >= 3*m.tick/2
		if !alone && !told && now.Sub(e.began) < 4*m.tick {
			return
		}
		e.let = true
		for i := range m.shards {
			if m.shards[i].phase == held {
				m.lose(&m.shards[i], m.why())
			}
		}
	}
	late := m.late(now)
	if !e.done && m.released(late) {
		e.done = true
		m.presence.next = time.Time{}
	}
	e.over = e.done && (m.presence.parted || late || m.failure != nil)
}

// late reports whether it is no use to wait any longer for an answer. What was
// ours was renewed before it was let go of: a TTL after that nothing is left to
// be released, however long the keeper is away. In haste one call has its time.
func (m *Member) late(now time.Time) bool {
	e := &m.exit
	if e.empty.IsZero() && !m.writing() {
		e.empty = now
	}
	limit := m.opts.TTL
	if e.haste {
		limit /= 5
	}
	return now.Sub(e.began) >= m.opts.Leave || !e.empty.IsZero() && m.away > 0 && now.Sub(e.empty) >= limit
}

// writing reports whether something of a shard may still be written.
func (m *Member) writing() bool {
	for i := range m.shards {
		if p := m.shards[i].phase; p == held || p == letting {
			return true
		}
	}
	return false
}

// why is what a shard is let go of for.
func (m *Member) why() Loss {
	if m.failure != nil {
		return LossTaken
	}
	return LossLeaving
}

// released reports whether nothing is left to be let go of; late, what can't be
// released is left to run out.
func (m *Member) released(late bool) bool {
	left := 0
	for i := range m.shards {
		switch s := &m.shards[i]; s.phase {
		case letting, held:
			return false
		case dropping:
			left++
		case free:
		}
	}
	if left > 0 && late {
		m.opts.Logger.Warn("leases couldn't be released; they run out by themselves", "shards", left, "within", m.opts.TTL)
	}
	if left > 0 && !late {
		return false
	}
	for _, g := range m.groups {
		if g.asked && !late {
			return false // it may bring another one
		}
	}
	return true
}
