package lobby

import (
	"net/netip"
	"time"

	"downlink/internal/peer"
)

// A site is an address that connections come from, or a /64 of IPv6.
type site struct {
	key     netip.Addr
	refs    int // guests and visits that name it
	waiting int // guests without a stream
	streams int
	rate    pace
	turns   turns

	prev, next *site // while it is idle
}

// settled is when a site has nothing left that would have to be remembered.
func (s *site) settled() time.Duration { return max(s.rate.full, s.turns.line) }

// Sites are those that somebody is here from, and those whose rate has to be
// remembered for a while, of which there is a bounded number.
type sites struct {
	all         map[netip.Addr]*site
	first, last *site // idle, from who has been so longest
	idle        int
}

// maxIdle is how many sites are remembered of which nobody is here. The one that
// has been idle longest is forgotten: who comes from more addresses isn't held
// back by a rate for each.
const maxIdle = 16 << 10

// get returns the site of an address, for one who will put it back; nil for an
// address that nobody knows.
func (ss *sites) get(a netip.Addr, now time.Duration) *site {
	ss.forget(now)
	key := peer.Site(a)
	if !key.IsValid() {
		return nil
	}
	s := ss.all[key]
	switch {
	case s == nil:
		s = &site{key: key}
		ss.all[key] = s
	case s.refs == 0:
		ss.unlink(s)
	}
	s.refs++
	return s
}

// put gives a site back.
func (ss *sites) put(s *site, now time.Duration) {
	if s == nil {
		return
	}
	if s.refs--; s.refs > 0 {
		return
	}
	s.prev = ss.last
	if ss.last == nil {
		ss.first = s
	} else {
		ss.last.next = s
	}
	ss.last = s
	ss.idle++
	ss.forget(now)
}

// forget drops idle sites that are settled, from the one that has been idle
// longest, and those over the bound.
func (ss *sites) forget(now time.Duration) {
	for s := ss.first; s != nil && (ss.idle > maxIdle || s.settled() <= now); s = ss.first {
		ss.unlink(s)
		delete(ss.all, s.key)
	}
}

func (ss *sites) unlink(s *site) {
	if s.prev == nil {
		ss.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		ss.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	ss.idle--
}
