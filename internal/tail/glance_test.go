package tail

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/eventlog"
)

// publish appends an entry as this process does, and reports whether it was
// read along.
func (s *source) publish(anew bool) bool {
	g := s.follow.Glance([]int{0})
	s.append(1)
	if len(g.Places) == 0 {
		return false
	}
	s.mu.Lock()
	found := s.after(g.After[0])
	s.mu.Unlock()
	s.follow.Glanced(g, anew, func() ([]eventlog.Batch, error) {
		return []eventlog.Batch{{Entries: found, Drained: true}}, nil
	})
	return true
}

// settled publishes until the reader rests, and the pace is known.
func (s *source) settled() {
	for range 2000 {
		s.publish(false)
		after(500 * time.Microsecond)
	}
}

func TestOwnAppendsAreHereAtOnceAndWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		s.settled()
		before := s.reads()
		for range 2000 {
			s.publish(false)
			synctest.Wait()
			if !s.dispatched() {
				t.Fatal("what this process appended isn't here yet")
			}
			after(500 * time.Microsecond)
		}
		if n := s.reads() - before; n > 2000/100 {
			t.Errorf("%d reads for 2,000 events that were read along", n)
		}
		if longest, _ := s.each(500*time.Microsecond, 2000); longest > 5*time.Millisecond {
			t.Errorf("an event of somebody else was %v late", longest)
		}
	})
}

func TestGlancesCeaseWhenEventsAreRareOrVeryFrequent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		for range 100 {
			if s.publish(false) {
				t.Fatal("an append reads along although the reader waits for it")
			}
			after(20 * time.Millisecond)
		}
		along := 0
		for i := range 20000 {
			if s.publish(false) && i > 10000 {
				along++
			}
			after(50 * time.Microsecond)
		}
		if along > 0 {
			t.Errorf("%d appends read along at 20,000 a second", along)
		}
	})
}

// TestWhatAReadMissesTheNextGlanceBrings: an append while a read is on its way
// back would else wait for the whole rest that follows.
func TestWhatAReadMissesTheNextGlanceBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		s.settled()
		missed := func(what string) {
			t.Helper()
			after(300 * time.Microsecond) // the read is back, and a rest begun
			if s.dispatched() {
				t.Fatalf("%s: nothing was missed", what)
			}
			if g := s.follow.Glance(nil); len(g.Places) != 1 {
				t.Errorf("%s: the next append reads %d shards along for it", what, len(g.Places))
			}
		}
		s.do(func() { s.slow = 200 * time.Microsecond })
		after(5 * time.Millisecond) // a read has begun
		s.append(1)
		synctest.Wait() // and found something
		if s.publish(false) {
			t.Fatal("a read is under way, and an append reads along")
		}
		missed("stored during a read")

		s.settled()
		g := s.follow.Glance([]int{0})
		after(5 * time.Millisecond)
		s.append(1)
		synctest.Wait()
		s.append(1)
		found := s.after(g.After[0])
		s.follow.Glanced(g, false, func() ([]eventlog.Batch, error) {
			return []eventlog.Batch{{Entries: found, Drained: true}}, nil
		})
		missed("read along, and overtaken by a read")
	})
}

// TestAGlanceOverAnotherConnection may come from another server: nothing of it
// is dispatched before the log was asked.
func TestAGlanceOverAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		s.settled()
		s.do(func() { s.demoted = true }) // no question is answered
		if !s.publish(true) {
			t.Fatal("the append read nothing along")
		}
		synctest.Wait()
		if s.dispatched() || s.publish(false) {
			t.Error("it is believed unasked")
		}
		after(500 * time.Millisecond)
		if s.dispatched() {
			t.Error("a read is believed unasked")
		}
		s.do(func() { s.demoted = false })
		after(5 * time.Second)
		if !s.dispatched() {
			t.Error("the reader doesn't go on")
		}
		s.settled()
		if !s.publish(false) {
			t.Error("appends don't read along any more")
		}
	})
}

// TestAGlanceAfterAFreeze: the sweep may have removed what lies between.
func TestAGlanceAfterAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		stop := s.paced(t)
		after(time.Second)
		s.settled()
		r := s.follow.(*reader)
		g := s.follow.Glance([]int{0})
		s.append(2)
		s.sweep(s.entries[len(s.entries)-2].ID)
		found := s.after(g.After[0])
		stop()
		r.mu.Lock() // what the freeze leaves behind: nothing has run, time has passed
		r.turn, r.tracks[0].fresh = g.Turn, time.Now().Add(-6*time.Second)
		r.mu.Unlock()
		s.follow.Glanced(g, false, func() ([]eventlog.Batch, error) {
			return []eventlog.Batch{{Entries: found, Drained: true}}, nil
		})
		if s.dispatched() {
			t.Error("what follows a gap was dispatched")
		}
	})
}

// TestNoGlanceAfterAFreeze: so much may have come meanwhile that no publisher
// should wait for it.
func TestNoGlanceAfterAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.paced(t)
		after(time.Second)
		s.settled()
		r := s.follow.(*reader)
		glance := func(frozen time.Duration) int {
			r.mu.Lock()
			r.pace.read = r.pace.read.Add(-frozen)
			r.mu.Unlock()
			return len(s.follow.Glance([]int{0}).Places)
		}
		if n := glance(5 * time.Millisecond); n != 1 {
			t.Errorf("a rest that is just over: %d shards are read along", n)
		}
		if n := glance(time.Second); n != 0 {
			t.Errorf("after a freeze: %d shards are read along", n)
		}
	})
}

func TestNothingIsDispatchedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		stop := s.paced(t)
		after(time.Second)
		s.settled()
		g := s.follow.Glance([]int{0})
		stop()
		s.append(1)
		s.follow.Glanced(g, false, func() ([]eventlog.Batch, error) {
			return []eventlog.Batch{{Entries: s.entries[len(s.entries)-1:], Drained: true}}, nil
		})
		if s.dispatched() || s.publish(false) {
			t.Error("a glance counts although Run has returned")
		}
		if n := testutil.ToFloat64(s.follow.(*reader).opts.Metrics.Glanced); n == 0 {
			t.Error("nothing was ever read along")
		}
	})
}
