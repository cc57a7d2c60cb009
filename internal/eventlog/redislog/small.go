package redislog

import (
	"sync"

	"downlink/internal/event"
)

// smallEntry is up to what size an entry is small, in bytes: maxCount of them
// are no more than a reply may have.
const smallEntry = mostBudget / maxCount

// A small is a part of a shard that the tail has read without a gap, and
// without meeting a large entry. What lies in it can be read again by number
// instead of by size, which costs the server less. Safe for concurrent use.
type small struct {
	mu       sync.Mutex
	from, to event.ID // nothing, at first
}

// read notes that the tail has read from one position to another, and what the
// largest entry in between was.
func (s *small) read(after, last event.ID, largest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after.Less(s.from) || s.to.Less(after) { // it doesn't join on
		s.from, s.to = after, after
	}
	s.to = event.Max(s.to, last)
	if largest > smallEntry {
		s.from = last
	}
}

// end says that what is read from now on may be of another past.
func (s *small) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.to = event.MaxID, event.MaxID
}

// covers reports whether all in (after, upTo] is small.
func (s *small) covers(after, upTo event.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !after.Less(s.from) && !s.to.Less(upTo)
}
