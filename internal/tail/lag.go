package tail

import (
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A Lag is how far the reader of one group is behind the log.
type Lag struct {
	Group   int
	Entries uint64 // that the log held at the last look and that weren't handed over by then
	// Least says that Entries is a lower bound: after a reset it isn't known how
	// many entries lie ahead, until the reader has been at the end again.
	Least bool
	// Delay is for how long the log has held an entry that wasn't handed over yet,
	// or for how long the last one had that a look has found, if that is longer:
	// else what is seconds behind all the time would seem to keep up at each new
	// look. It is counted on this process's own clock, from the look on, and so
	// never more than the truth.
	Delay  time.Duration
	Shard  int       // whose Delay that is
	Looked time.Time // when the log was last asked; zero: it never has been
}

// Lags are those of all groups. Looks are the watchdog's rounds.
func (t *Tail) Lags() []Lag {
	lags := make([]Lag, len(t.readers))
	for i, r := range t.readers {
		lags[i] = r.meter.lag(time.Now())
		lags[i].Group, lags[i].Shard = r.group, r.shards[lags[i].Shard]
	}
	return lags
}

// A meter measures how far a reader is behind. It compares what the log says that
// it got with what was handed over, and marks the head that a look finds, to see
// when that is reached. It has a lock of its own: the reader's is held while the
// log is asked, and who wants to know how late it is can't wait for that.
type meter struct {
	mu     sync.Mutex
	shards []measure
	looked time.Time
}

// A measure is what the meter knows of one shard.
type measure struct {
	pos   event.ID
	of    event.ID // of which record (Founded) base is
	base  uint64   // what the log had counted at the position from which read counts
	read  uint64   // entries that were handed over since
	known bool     // base is

	mark   event.ID      // a head that isn't reached yet
	marked time.Time     // when it was found; zero: there is none
	met    bool          // one was reached since the last look,
	late   time.Duration // so long after it was found
	unread uint64
}

func newMeter(shards int) *meter { return &meter{shards: make([]measure, shards)} }

// begin says that nothing before a position will be handed over. The count is
// what the log had at its head.
func (m *meter) begin(i int, found eventlog.Inspection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looked = time.Now()
	m.shards[i] = measure{pos: found.State.Head, of: found.State.Founded, base: found.Added, known: true}
}

// jump says that the position is another one, and that what lies ahead of it is
// unknown.
func (m *meter) jump(i int, pos event.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shards[i] = measure{pos: pos}
}

// handed says that entries up to pos were handed over.
func (m *meter) handed(i, entries int, pos event.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.shards[i]
	s.pos, s.read = pos, s.read+uint64(entries)
	if !s.marked.IsZero() && s.mark.Compare(pos) <= 0 {
		s.late, s.marked, s.met = time.Since(s.marked), time.Time{}, true
	}
}

// look takes what a look at all shards has found.
func (m *meter) look(found []eventlog.Inspection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looked = time.Now()
	for i := range found {
		m.shards[i].look(m.looked, found[i].State, found[i].Added)
	}
}

func (s *measure) look(now time.Time, state eventlog.State, added uint64) {
	if s.of != state.Founded {
		s.known, s.of = false, state.Founded
	}
	ahead := s.pos.Less(state.Head)
	switch {
	case s.pos == state.Head:
		s.base, s.read, s.known = added, 0, true
	case !ahead && added > s.base+s.read:
		s.base = added - s.read // what the log has added for itself is never read
	}
	s.unread = 0
	if ahead {
		s.unread = 1
		if all := s.base + s.read; s.known && added > all {
			s.unread = added - all
		}
	}
	switch {
	case !ahead && s.met:
		s.met = false // late stands for a round at least, or nobody would see it
	case !ahead:
		s.late = 0
	case ahead && s.marked.IsZero():
		s.mark, s.marked, s.met = state.Head, now, false
	}
}

// lag sums up; Shard is a place in shards.
func (m *meter) lag(now time.Time) (l Lag) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.Looked = m.looked
	for i := range m.shards {
		s := &m.shards[i]
		l.Entries += s.unread
		l.Least = l.Least || !s.known && s.unread > 0
		late := s.late
		if !s.marked.IsZero() {
			late = max(late, now.Sub(s.marked))
		}
		if late > l.Delay {
			l.Delay, l.Shard = late, i
		}
	}
	return l
}
