package session

import "sync"

// A Roster is the sessions of a gateway, whatever their transport, so that they
// can be ended. Its zero value is ready. Safe for concurrent use.
type Roster struct {
	mu       sync.Mutex
	sessions map[*Session]struct{}
	closed   bool
}

// Add reports false once the roster is closed: who comes too late for EndAll
// must not stay.
func (r *Roster) Add(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.sessions == nil {
		r.sessions = make(map[*Session]struct{})
	}
	r.sessions[s] = struct{}{}
	return true
}

// Remove forgets a session; one that isn't there does no harm.
func (r *Roster) Remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

// EndAll ends every session with a reason, and lets none in from now on.
func (r *Roster) EndAll(reason EndReason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.sessions {
		s.End(reason)
	}
}

// Len is how many sessions there are.
func (r *Roster) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}
