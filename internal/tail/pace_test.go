package tail

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/event"
)

// paced runs a tail with a pause of 5 ms on the source.
func (s *source) paced(t *testing.T) (stop func()) {
	t.Helper()
	tail := New(s, s, Options{
		Window: 10 * time.Second, Watch: time.Second, Pause: 5 * time.Millisecond,
		Metrics: NewMetrics(nil), Logger: discard(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = tail.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (s *source) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// each appends n entries, one every so often, and returns the longest that one
// waited for its dispatch and how many reads it took.
func (s *source) each(every time.Duration, n int) (longest time.Duration, reads int) {
	before := s.reads()
	for range n {
		s.append(1)
		sent := time.Now()
		for waited := false; !waited; {
			synctest.Wait()
			if waited = s.dispatched(); waited {
				longest = max(longest, time.Since(sent))
				break
			}
			if time.Since(sent) >= every {
				break // the next one is due: it is counted with that
			}
			time.Sleep(every / 10) //nolint:forbidigo // virtual time
		}
		time.Sleep(every - time.Since(sent)) //nolint:forbidigo // virtual time
	}
	synctest.Wait()
	return longest, s.reads() - before
}

// dispatched reports whether everything that was appended has been.
func (s *source) dispatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[len(s.calls)-1] == fmt.Sprintf("entry %v", s.state.Head)
}

func TestRareEventsAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		for _, every := range []time.Duration{time.Second, 100 * time.Millisecond, 4 * time.Millisecond} {
			if longest, _ := s.each(every, 100); longest != 0 {
				t.Errorf("one event every %v: %v late", every, longest)
			}
		}
	})
}

func TestFrequentEventsShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		for _, c := range []struct {
			every time.Duration
			least float64 // events a read
		}{{time.Millisecond, 3.5}, {500 * time.Microsecond, 3.5}, {50 * time.Microsecond, 3.5}} {
			s.each(c.every, 2000) // the rate is known then
			if _, reads := s.each(c.every, 2000); 2000/float64(reads) < c.least {
				t.Errorf("one event every %v: %d reads for 2,000", c.every, reads)
			}
		}
		after(time.Second)
		if longest, _ := s.each(100*time.Millisecond, 5); longest != 0 {
			t.Errorf("when it is quiet again: %v late", longest)
		}
	})
}

// TestNothingWaitsLongerThanThePause, however loaded the log is.
func TestNothingWaitsLongerThanThePause(t *testing.T) {
	p := pace{most: 5 * time.Millisecond}
	now := time.Now()
	for rate := 1; rate < 1_000_000; rate *= 3 {
		for _, took := range []time.Duration{0, time.Microsecond, 3 * time.Millisecond, time.Minute} {
			for range 50 {
				now = now.Add(20*time.Millisecond + took)
				p.came(now.Add(-took), now, 1+rate/50, true)
				if p.wait < 0 || p.wait > p.most {
					t.Fatalf("%d entries a read that took %v: a wait of %v", 1+rate/50, took, p.wait)
				}
			}
		}
	}
	if p.came(now.Add(-2*time.Millisecond), now, 1000, true); p.wait < 4*time.Millisecond {
		t.Errorf("a read took 2 ms at the log, and the reader rests %v", p.wait)
	}
	if p.came(now, now.Add(time.Millisecond), 1000, false); p.wait != 0 {
		t.Errorf("more is there already, and the reader waits %v", p.wait)
	}
	p = pace{}
	if p.came(now, now.Add(time.Millisecond), 1000, true); p.wait != 0 {
		t.Errorf("no pause is wanted, and the reader waits %v", p.wait)
	}
}

// TestAResetDuringARest: the watchdog moves the position while the reader
// rests; it reads on from there.
func TestAResetDuringARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		stop := s.paced(t)
		after(time.Second)
		for range 3 {
			s.each(500*time.Microsecond, 100)
			s.do(func() { // a flush: another log stands there, and goes on
				s.entries = nil
				s.state.Founded = s.state.Head.Next()
				s.state.Head = event.ID{Ms: s.state.Head.Ms + 1}
				s.state.Swept, s.state.Since = s.state.Head, s.state.Head
			})
			s.each(500*time.Microsecond, 4000) // longer than the watchdog waits
			after(5 * time.Millisecond)
			if !s.dispatched() {
				t.Fatalf("the tail doesn't follow the new log: %v", s.seen()[len(s.seen())-1])
			}
		}
		stop()
	})
}
