package shard

import (
	"sync"
	"time"
)

// A Pacer spreads what many devices would do in the same moment: each call of
// Delay gets the next free slot. Safe for concurrent use.
type Pacer struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time
}

// NewPacer spreads to one a slot; a slot is every long.
func NewPacer(every time.Duration) *Pacer { return &Pacer{every: every} }

// Delay is how long this caller should wait: zero when nobody is ahead of it.
func (p *Pacer) Delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	delay := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	return delay
}
