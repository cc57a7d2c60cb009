package lease

import (
	"time"

	"downlink/internal/eventlog"
)

// presence is this member's place among the members. Owned by Run.
type presence struct {
	asked  bool      // a call is under way
	away   bool      // the last one failed
	next   time.Time // nothing is asked before
	due    time.Time // when the membership is to be renewed
	doubt  time.Time // since when another process has our name; zero: none has
	parted bool      // it has been said that we are gone
}

// meet asks who is there, and says that we are, if it is time.
func (m *Member) meet(now time.Time) {
	p := &m.presence
	if p.asked || now.Before(p.next) {
		return
	}
	says := eventlog.PresenceLook
	switch {
	case m.exit.done:
		says = eventlog.PresenceGone
	case m.leaving:
		says = eventlog.PresenceLeaving
	case !now.Before(p.due) && m.informed():
		says = eventlog.PresenceStay
	}
	p.asked = true
	m.calls.Go(func() {
		ctx, cancel := m.brief()
		defer cancel()
		sent := time.Now()
		who, err := m.opts.Keeper.Members(ctx, m.who, says)
		m.back <- func() { m.met(sent, says, who, err) }
	})
}

// met takes over who is there.
func (m *Member) met(sent time.Time, says eventlog.Presence, who eventlog.Membership, err error) {
	p := &m.presence
	p.asked, p.next = false, m.pause(sent)
	if m.heard(&p.away, err); err != nil {
		p.due = time.Time{}
		return
	}
	switch {
	case who.Taken:
		m.doubted(sent)
		return
	case says == eventlog.PresenceGone:
		p.parted = true
		return
	case !who.Known && !m.informed():
		return // it joins when it knows enough to take a part
	case !who.Known: // forgotten, or expired: nobody knows who else was
		p.next, p.due = time.Time{}, time.Time{}
		for _, g := range m.groups {
			g.due = time.Time{}
		}
		return
	case says == eventlog.PresenceLeaving && m.exit.announced.IsZero():
		m.exit.announced = time.Now()
	case says == eventlog.PresenceStay:
		p.due = m.renewal(sent)
	}
	if !m.joined {
		m.joined = true
		m.opts.Logger.Info("joined the ring", "member", m.who.Name, "members", len(who.Members))
	}
	p.doubt = time.Time{}
	m.propose(m.view.meet(sent, time.Now(), who.Members, m.opts.TTL/3, m.opts.TTL/3))
}

// doubted notes that another process has our name. One that has crashed has it
// until its membership runs out: a process that was just started waits for that.
func (m *Member) doubted(now time.Time) {
	if m.presence.doubt.IsZero() {
		m.presence.doubt = now
		m.opts.Logger.Warn("another process is a member by our name; if it has ended, its membership runs out soon", "member", m.who.Name)
	}
	if m.failure == nil && (m.joined || now.Sub(m.presence.doubt) > m.opts.TTL*3/2) {
		m.failure = ErrNameTaken
		m.leave(now)
	}
}
