package tail

import (
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// lagOf is the lag of a tail of one group.
func lagOf(t *testing.T, tail *Tail) Lag {
	t.Helper()
	lags := tail.Lags()
	if len(lags) != 1 {
		t.Fatalf("%d lags of one group", len(lags))
	}
	return lags[0]
}

func wantLag(t *testing.T, tail *Tail, what string, entries uint64, least bool, from, to time.Duration) {
	t.Helper()
	if l := lagOf(t, tail); l.Entries != entries || l.Least != least || l.Delay < from || l.Delay > to {
		t.Errorf("%s: %+v, want %d entries (at least: %v) and a delay of %v to %v", what, l, entries, least, from, to)
	}
}

func TestLagOfATailThatKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		for range 100 {
			s.append(7)
			after(100 * time.Millisecond)
			wantLag(t, tail, "keeping up", 0, false, 0, 0)
		}
		after(time.Hour)
		wantLag(t, tail, "idle", 0, false, 0, 0)
		if l := lagOf(t, tail); time.Since(l.Looked) > 4*time.Second {
			t.Errorf("the last look was %v ago", time.Since(l.Looked))
		}
	})
}

func TestLagBeforeTheLogIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.away = true
		tail := s.run(t)
		after(time.Minute)
		if l := lagOf(t, tail); !l.Looked.IsZero() {
			t.Errorf("nobody has looked, and the lag says %+v", l)
		}
	})
}

// TestLagOfSlowReads: every answer takes five seconds, in which 50 entries come.
func TestLagOfSlowReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		after(time.Second)
		s.do(func() { s.slow = 5 * time.Second })
		var most Lag
		for i := range 400 {
			s.append(1)
			after(100 * time.Millisecond)
			l := lagOf(t, tail)
			most.Entries, most.Delay = max(most.Entries, l.Entries), max(most.Delay, l.Delay)
			if i > 150 && l.Delay < 2*time.Second {
				t.Errorf("it is behind all the time, and after %d entries the delay is %v", i, l.Delay)
			}
		}
		// An entry that just missed an answer waits for two of them.
		if most.Entries < 50 || most.Entries > 100 || most.Delay < 4*time.Second || most.Delay > 10*time.Second {
			t.Errorf("%d entries and %v at most; want 50 to 100, and 4 s to 10 s", most.Entries, most.Delay)
		}
		s.do(func() { s.slow = 0 })
		after(20 * time.Second)
		wantLag(t, tail, "keeping up again", 0, false, 0, 0)
	})
}

func TestLagOfAReaderThatHearsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		after(time.Second)
		s.do(func() { s.deaf = true })
		s.append(1234)
		after(time.Minute)
		wantLag(t, tail, "deaf", 1234, false, 56*time.Second, time.Minute)
		s.do(func() { s.deaf = false })
		after(time.Second)
		if l := lagOf(t, tail); l.Delay < 56*time.Second || l.Delay > 62*time.Second {
			t.Errorf("what was handed over had waited for a minute; the lag says %v", l.Delay)
		}
		after(7 * time.Second)
		wantLag(t, tail, "afterwards", 0, false, 0, 0)
	})
}

// TestLagWhileTheLogIsAway: the last look is old, and by that it is told.
func TestLagWhileTheLogIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		after(10 * time.Second)
		s.do(func() { s.away = true })
		after(time.Minute)
		if l := lagOf(t, tail); time.Since(l.Looked) < 50*time.Second {
			t.Errorf("the log is away, and it was looked at %v ago", time.Since(l.Looked))
		}
	})
}

// TestLagDoesNotDrift: a log counts entries of its own, which nobody reads; it
// is founded anew; and after a reset nobody knows how many lie ahead.
func TestLagDoesNotDrift(t *testing.T) {
	start := event.ID{Ms: 1000}
	found := func(founded, head event.ID, added uint64) []eventlog.Inspection {
		return []eventlog.Inspection{{State: eventlog.State{Founded: founded, Head: head}, Added: added}}
	}
	at := func(seq uint64) event.ID { return event.ID{Ms: 1000, Seq: seq} }
	wantMeter := func(m *meter, what string, entries uint64, least bool) {
		t.Helper()
		if l := m.lag(time.Now()); l.Entries != entries || l.Least != least {
			t.Errorf("%s: %+v, want %d entries, at least: %v", what, l, entries, least)
		}
	}
	m := newMeter(1)
	m.begin(0, found(start, start, 1000)[0])
	m.handed(0, 3, at(3))
	m.look(found(start, at(5), 1005))
	wantMeter(m, "two ahead", 2, false)
	m.handed(0, 4, at(7)) // beyond the head of the next look
	m.look(found(start, at(5), 1008))
	wantMeter(m, "one that nobody reads", 0, false)
	m.look(found(start, at(9), 1010))
	wantMeter(m, "two ahead again", 2, false)
	m.handed(0, 2, at(9))
	m.look(found(start, at(9), 999_999)) // caught up: whatever it counts is where we are
	m.look(found(start, at(10), 1_000_000))
	wantMeter(m, "one ahead", 1, false)
	m.look(found(at(10), at(20), 7))
	wantMeter(m, "another record", 1, true)
	m.handed(0, 1, at(20))
	m.look(found(at(10), at(20), 7))
	m.look(found(at(10), at(24), 11))
	wantMeter(m, "known again", 4, false)
	m.jump(0, at(22))
	wantMeter(m, "after a jump", 0, false) // until the next look
	m.look(found(at(10), at(24), 11))
	wantMeter(m, "after a jump, looked at", 1, true)
}
