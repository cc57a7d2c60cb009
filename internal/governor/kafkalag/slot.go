package kafkalag

import (
	"context"
	"sync"
	"time"

	"downlink/internal/governor"
)

// A Slot is a signal whose probe may be exchanged, or be none, while it is read. It
// implements governor.Probe. The zero value holds none. Safe for concurrent use.
type Slot struct {
	mu     sync.Mutex
	probe  *Probe // nil: none
	closed bool
}

// Set has a probe asked from now on (nil: none), and closes the one before. After
// Close it closes the probe at once.
func (s *Slot) Set(p *Probe) {
	s.mu.Lock()
	before := s.probe
	s.probe = p
	if s.closed {
		before, s.probe = p, nil
	}
	s.mu.Unlock()
	if before != nil {
		before.Close()
	}
}

// Close closes the probe, and every later one.
func (s *Slot) Close() {
	s.Set(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *Slot) now() *Probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probe
}

// Signal is how the readings are judged.
func (s *Slot) Signal() governor.Signal {
	return governor.Signal{
		Probe: s, Unit: "entries",
		Help: "Records that a consumer group of Kafka hasn't committed yet, of the group that has most. " +
			"What devices cause is handled more slowly than it comes: run more consumers, or let fewer devices in.",
		Period: 5 * time.Second, Timeout: Timeout, Fresh: 30 * time.Second,
		Threshold: 1000, Levers: []string{governor.Admission},
	}
}

// Name implements governor.Probe.
func (s *Slot) Name() string { return Name }

// Read implements governor.Probe.
func (s *Slot) Read(ctx context.Context) (governor.Reading, error) {
	for {
		p := s.now()
		if p == nil {
			return governor.Reading{None: "no consumer group is named whose lag is to be watched (kafka, in the governor's file)"}, nil
		}
		r, err := p.Read(ctx)
		if s.now() == p || ctx.Err() != nil {
			return r, err
		}
		// It was exchanged meanwhile: what it says, or that it was closed, isn't asked for any more.
	}
}
