package sse

import (
	"sync"

	"downlink/internal/session"
)

// roster is the sessions of this gateway, so that they can be ended. Its zero
// value is ready.
type roster struct {
	mu       sync.Mutex
	sessions map[*session.Session]struct{}
	closed   bool
}

// add reports false once the roster is closed: who comes too late for endAll
// must not stay.
func (r *roster) add(s *session.Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.sessions == nil {
		r.sessions = make(map[*session.Session]struct{})
	}
	r.sessions[s] = struct{}{}
	return true
}

func (r *roster) remove(s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

func (r *roster) endAll(reason session.EndReason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.sessions {
		s.End(reason)
	}
}

func (r *roster) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}
