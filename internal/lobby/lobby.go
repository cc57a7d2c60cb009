// Package lobby owns who is in at a listener: the connections that carry no
// stream (they shake hands, ask for health, or are being told "no"), the
// streams that were admitted, where they come from, and how fast they may come.
// It moves no bytes and speaks no protocol. Its invariant: who was admitted is
// never put out for another's sake, and what a connection or a stream took is
// given back exactly once, however it ends.
//
// A connection without a stream is in the lobby, which holds a bounded number:
// when one more comes, one is cut of those that have waited longest at the stage
// at which most of them wait. So those who never finish their request can't keep
// out those who do, however many they are.
package lobby

import (
	"container/list"
	"io"
	"net/netip"
	"sync"
	"time"

	"downlink/internal/peer"
)

// Options for a Lobby. The limits are asked at each decision, so a change counts
// at once; a lowered one puts no stream out. Where a function is nil, or returns
// 0, there is no such limit.
type Options struct {
	Waiting           func() int // connections without a stream; required
	Streams           func() int // at a time
	StreamsPerAddress func() int // at a time from one address, or one /64 of IPv6
	Rate              func() int // streams that begin, a second
	RatePerAddress    func() int // requests for streams from one address, a second
	// Reserve is how many more than Streams there may be for the sake of those who
	// come back, and RateReserve how much of Rate is for them alone.
	Reserve, RateReserve func() int
	// Proxies are the networks of load balancers: connections of theirs aren't
	// counted by their own address.
	Proxies peer.Proxies
	// Short reports whether the process is out of descriptors, so that a stream
	// must not take one for good. Nil: it never is.
	Short func() bool
	// Keep lets a connection that was admitted stay so until it is closed, for
	// clients that make one request after the other.
	Keep    bool
	Retry   time.Duration // after which a refused client may come back at the earliest, jittered by half
	Metrics *Meter
}

// A Lobby counts for one listener. Safe for concurrent use.
type Lobby struct {
	// Set at construction.
	opts  Options
	began time.Time

	// Guarded by mu.
	mu      sync.Mutex
	queues  [stages]queue // guests that can be cut, by how far they have come
	waiting int           // guests without a stream
	streams int
	sites   sites
	rate    pace
	fresh   pace  // of those who don't come back
	turns   turns // of those who were refused
	desk    desk
}

// New makes a lobby.
func New(o Options) *Lobby {
	return &Lobby{opts: o, began: time.Now(), sites: sites{all: make(map[netip.Addr]*site)}, desk: newDesk()}
}

// now is the time since the lobby was made.
func (l *Lobby) now() time.Duration { return time.Since(l.began) }

// limit is a limit's value now; 0: none.
func limit(f func() int) int {
	if f == nil {
		return 0
	}
	return max(f(), 0)
}

// A Guest is one connection of the listener.
type Guest struct {
	// Set at construction.
	lobby *Lobby
	from  *site // nil if it isn't counted by its own address

	// Guarded by lobby.mu.
	closer     io.Closer // cuts the connection; nil while it can't be cut
	stage      Stage
	prev, next *Guest // in the queue of its stage
	queued     bool
	cut        bool // to make room
	taken      bool // its connection has left the listener's hands
	gone       bool
	streams    int
	own        Visit // its only one, unless it makes several at a time
	working    bool  // uses the processor
	turn       chan struct{}
	line       *list.List // in which it waits for its turn
	place      *list.Element
}

// Arrive lets a connection in, if need be by cutting others. Nil means that
// there is no room, because nobody can be cut: close it.
func (l *Lobby) Arrive(from netip.Addr) *Guest {
	proxied := l.opts.Proxies.Trust(from)
	l.mu.Lock()
	cut := l.makeRoomLocked(1)
	if l.waiting >= max(limit(l.opts.Waiting), 1) {
		l.mu.Unlock()
		l.close(cut)
		l.opts.Metrics.away.Inc()
		return nil
	}
	g := &Guest{lobby: l}
	if !proxied {
		g.from = l.sites.get(from, l.now())
	}
	l.waitLocked(g)
	l.mu.Unlock()
	l.close(cut)
	return g
}

// Sit says how a guest is cut if another needs its room.
func (g *Guest) Sit(c io.Closer) {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.closer = c; g.streams == 0 && !g.gone {
		l.queues[g.stage].push(g)
	}
}

// Cut reports whether the guest was put out because another needed its room.
func (g *Guest) Cut() bool {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	return g.cut
}

// Proxied says that where its requests come from is for a header to say.
func (g *Guest) Proxied() bool { return g.from == nil }

// Take notes that the connection goes on in other hands, together with the visit
// that it makes: what Take returns ends both. It can't be cut any more.
func (g *Guest) Take() (end func()) {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	g.taken, g.closer = true, nil
	l.queues[g.stage].remove(g)
	return g.end
}

func (g *Guest) end() {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(g) // first: it doesn't come back into the lobby
	l.endLocked(&g.own)
}

// Leave notes that the connection is closed. Visits that it still makes end for
// themselves. Leaving again does nothing.
func (g *Guest) Leave() {
	l := g.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(g)
	if l.opts.Keep {
		l.endLocked(&g.own)
	}
}

// CutOne cuts one as if another needed its room, because a descriptor is needed;
// false if nobody can be cut.
func (l *Lobby) CutOne() bool {
	l.mu.Lock()
	cut := l.pickLocked()
	l.mu.Unlock()
	if cut == nil {
		return false
	}
	l.close([]io.Closer{cut})
	return true
}

// Count is how many connections carry no stream, how many streams were
// admitted, and how many addresses are remembered.
func (l *Lobby) Count() (waiting, streams, addresses int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting, l.streams, len(l.sites.all)
}

// waitLocked counts a guest among those without a stream.
func (l *Lobby) waitLocked(g *Guest) {
	l.waiting++
	l.opts.Metrics.waiting.Set(float64(l.waiting))
	if g.from != nil {
		g.from.waiting++
	}
}

// unwaitLocked takes a guest out of those.
func (l *Lobby) unwaitLocked(g *Guest) {
	l.queues[g.stage].remove(g)
	l.desk.leave(g)
	l.waiting--
	l.opts.Metrics.waiting.Set(float64(l.waiting))
	if g.from != nil {
		g.from.waiting--
	}
}

func (l *Lobby) leaveLocked(g *Guest) {
	if g.gone {
		return
	}
	g.gone = true
	if g.streams == 0 && !g.cut {
		l.unwaitLocked(g)
	}
	l.sites.put(g.from, l.now())
}

// close cuts connections. Without the lock: their guests leave.
func (l *Lobby) close(cut []io.Closer) {
	for _, c := range cut {
		l.opts.Metrics.cut.Inc()
		_ = c.Close() // it is cut in any case
	}
}
