package server

import (
	"context"
	"sync"
)

// inFlight counts requests, so that one can wait for them. Safe for concurrent
// use.
type inFlight struct {
	mu     sync.Mutex
	open   int
	closed bool
	none   chan struct{} // closed when open is zero and closed
}

func newInFlight() *inFlight { return &inFlight{none: make(chan struct{})} }

// begin counts a request in; false once nobody may come any more.
func (f *inFlight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.open++
	return true
}

// end counts a request out.
func (f *inFlight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open--; f.open == 0 && f.closed {
		close(f.none)
	}
}

// drain lets no request begin, and waits for those that have until ctx ends.
func (f *inFlight) drain(ctx context.Context) {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		if f.open == 0 {
			close(f.none)
		}
	}
	f.mu.Unlock()
	select {
	case <-f.none:
	case <-ctx.Done():
	}
}
