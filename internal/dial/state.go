package dial

import "sync"

// A standing is the state of a link, counted in the metrics. Safe for concurrent use.
type standing struct {
	metrics *Metrics

	mu  sync.Mutex
	now State // empty: not counted
}

// is notes the state; empty takes the link out of the count.
func (s *standing) is(next State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next == s.now {
		return
	}
	if s.now != "" {
		s.metrics.counts(s.now, -1)
	}
	if next != "" {
		s.metrics.counts(next, 1)
	}
	s.now = next
}

func (s *standing) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}
