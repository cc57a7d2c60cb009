package lobby

import (
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"downlink/internal/backoff"
)

// A Reason is why a stream isn't admitted: the name of the limit.
type Reason string

// The reasons.
const (
	Full           Reason = "max_connections"
	AddressFull    Reason = "connections_per_address"
	TooFast        Reason = "accept_rate"
	AddressTooFast Reason = "accept_rate_per_address"
	NoDescriptors  Reason = "descriptors"
)

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{Full, AddressFull, TooFast, AddressTooFast, NoDescriptors}
}

// A Visit is one request of a guest. Its methods are safe for concurrent use.
type Visit struct {
	admitted atomic.Bool // written under lobby.mu

	// Guarded by lobby.mu.
	guest *Guest
	site  *site // whom it is counted for; nil if nobody knows
	open  bool
}

// Visit begins a request; End ends it. client is where it comes from, for a
// guest that is Proxied.
func (g *Guest) Visit(client netip.Addr) *Visit {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &g.own
	switch {
	case v.open && l.opts.Keep:
		return v
	case v.open:
		v = new(Visit)
	}
	v.guest, v.open = g, true
	if v.site = g.from; v.site != nil {
		v.site.refs++
	} else {
		v.site = l.sites.get(client, l.now())
	}
	return v
}

// Knock counts a request for a stream, before anybody has looked at it. It says
// "" if its address may ask, or why not, and after which time to ask again.
func (v *Visit) Knock() (why Reason, retry time.Duration) {
	l := v.guest.lobby
	rate := limit(l.opts.RatePerAddress)
	if rate == 0 || v.site == nil {
		return "", 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); !v.site.rate.take(now, rate) {
		return AddressTooFast, v.site.turns.next(now, l.earliest(), longestByRate, rate)
	}
	return "", 0
}

// Admit takes what a stream needs, which End gives back. It says "" if there is
// room, or why not, and after which time to come back. back says that it is the
// stream of one who was here a moment ago, for whom there is a reserve. Admitting
// again does nothing.
func (v *Visit) Admit(back bool) (why Reason, retry time.Duration) {
	if v.admitted.Load() {
		return "", 0
	}
	l := v.guest.lobby
	short := l.opts.Short != nil && l.opts.Short()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case v.admitted.Load():
		return "", 0
	case !v.open || v.guest.cut || v.guest.gone: // nobody will get the answer
		return Full, l.earliest()
	case short:
		return NoDescriptors, l.laterLocked(l.streams)
	}
	if why, retry := l.refusalLocked(v.site, back); why != "" {
		return why, retry
	}
	l.admitLocked(v)
	return "", 0
}

// refusalLocked asks each limit whether one more stream may come from a site.
// The rate is asked last, because asking costs.
func (l *Lobby) refusalLocked(from *site, back bool) (why Reason, retry time.Duration) {
	now := l.now()
	most := limit(l.opts.Streams)
	room := most
	if back {
		room += limit(l.opts.Reserve)
	}
	if most > 0 && l.streams >= room {
		return Full, l.laterLocked(most)
	}
	if most := limit(l.opts.StreamsPerAddress); most > 0 && from != nil && from.streams >= most {
		return AddressFull, from.turns.next(now, l.earliest(), longestForRoom, slowly(most))
	}
	if rate := limit(l.opts.Rate); rate > 0 && !l.paceLocked(now, rate, back) {
		return TooFast, l.turns.next(now, l.earliest(), longestByRate, rate)
	}
	return "", 0
}

// paceLocked takes a stream's turn to begin. Who doesn't come back is held to what
// isn't reserved, too.
func (l *Lobby) paceLocked(now time.Duration, rate int, back bool) bool {
	if kept := limit(l.opts.RateReserve); !back && kept > 0 && !l.fresh.take(now, max(rate-kept, 1)) {
		return false
	}
	return l.rate.take(now, rate)
}

// laterLocked is when to come back to a gateway that is full. Nobody knows when
// there is room, so a crowd as large as it holds is spread over crowdReturns.
func (l *Lobby) laterLocked(most int) time.Duration {
	rate := slowly(most)
	if fastest := limit(l.opts.Rate); fastest > 0 {
		rate = min(rate, fastest)
	}
	return l.turns.next(l.now(), l.earliest(), longestForRoom, rate)
}

// crowdReturns is in how many seconds a crowd as large as a limit comes back to
// try its luck.
const crowdReturns = 60

func slowly(most int) (perSecond int) { return max(most/crowdReturns, 1) }

func (l *Lobby) earliest() time.Duration { return backoff.Jitter(l.opts.Retry, 0.5) }

func (l *Lobby) admitLocked(v *Visit) {
	v.admitted.Store(true)
	l.streams++
	l.opts.Metrics.admitted.Set(float64(l.streams))
	if v.site != nil {
		v.site.streams++
	}
	if v.guest.streams++; v.guest.streams == 1 {
		l.unwaitLocked(v.guest)
	}
}

// End gives back what the visit has taken; a connection without a stream is back
// in the lobby. Ending again does nothing, and neither does ending what a
// connection that was taken over goes on with.
func (v *Visit) End() {
	l := v.guest.lobby
	l.mu.Lock()
	if v.guest.taken || l.opts.Keep {
		l.mu.Unlock()
		return
	}
	cut := l.endLocked(v)
	l.mu.Unlock()
	l.close(cut)
}

// endLocked ends a visit and returns who is to be cut because its connection is
// back in the lobby.
func (l *Lobby) endLocked(v *Visit) (cut []io.Closer) {
	if !v.open {
		return nil
	}
	v.open = false
	if v.admitted.Swap(false) {
		l.streams--
		l.opts.Metrics.admitted.Set(float64(l.streams))
		if v.site != nil {
			v.site.streams--
		}
		g := v.guest
		if g.streams--; g.streams == 0 && !g.gone {
			cut = l.makeRoomLocked(1)
			l.waitLocked(g)
			l.queues[g.stage].push(g)
		}
	}
	l.sites.put(v.site, l.now())
	v.site = nil
	return cut
}
