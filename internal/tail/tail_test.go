package tail

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// after lets virtual time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func want(t *testing.T, s *source, calls ...string) {
	t.Helper()
	if diff := cmp.Diff(calls, s.seen()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestReadsOnFromConcretePositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.append(2) // before this gateway came
		tail := s.run(t)
		after(time.Second)
		s.append(1)
		after(time.Second)
		s.append(2)
		after(time.Hour)
		want(t, s, "start 1000-2", "entry 1000-3", "entry 1000-4", "entry 1000-5")
		for _, id := range s.asked {
			if id.Less(event.ID{Ms: 1000, Seq: 2}) {
				t.Errorf("read from %v", id)
			}
		}
		if !tail.Ready() || !reachable(tail) {
			t.Error("not ready")
		}
	})
}

func TestIdleShardRaisesNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(time.Second)
		s.append(3)
		after(time.Second)
		s.sweep(s.state.Head)
		after(3 * time.Hour)
		want(t, s, "start 1000-0", "entry 1000-1", "entry 1000-2", "entry 1000-3")
	})
}

func TestLogAwayAtTheStartAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.away = true
		tail := s.run(t)
		after(time.Minute)
		if tail.Ready() {
			t.Error("ready without a position")
		}
		s.do(func() { s.away = false })
		after(5 * time.Second)
		if !tail.Ready() {
			t.Error("not ready")
		}
		s.do(func() { s.away = true })
		after(time.Minute)
		if !tail.Ready() || reachable(tail) {
			t.Error("a gateway that was ready stays ready, and says that the log is away")
		}
		s.append(1)
		s.do(func() { s.away = false })
		after(5 * time.Second)
		want(t, s, "start 1000-0", "entry 1000-1")
	})
}

func TestLogReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(time.Second)
		s.append(5)
		after(time.Second)
		fresh := event.ID{Ms: 900} // the clock went back as well
		s.do(func() {
			s.entries = nil
			s.state = eventlog.State{Head: fresh, Swept: fresh, Since: fresh, Founded: fresh}
		})
		after(5 * time.Second)
		s.append(1)
		after(time.Hour)
		want(t, s, "start 1000-0", "entry 1000-1", "entry 1000-2", "entry 1000-3", "entry 1000-4", "entry 1000-5",
			"suspect 1000-5", "reset 900-0 log-rewound", "entry 900-1")
	})
}

func TestOlderSnapshotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(time.Second)
		s.append(3)
		after(time.Second)
		s.do(func() { s.entries, s.state.Head = s.entries[:1], s.entries[0].ID })
		after(5 * time.Second)
		want(t, s, "start 1000-0", "entry 1000-1", "entry 1000-2", "entry 1000-3",
			"suspect 1000-3", "reset 1000-1 log-rewound")
	})
}

// TestBreakOfAnotherGatewayIsHeeded: it is recorded again only by whom it cost
// something: the log decides whether that is more than what it knows of.
func TestBreakOfAnotherGatewayIsHeeded(t *testing.T) {
	for _, reason := range []event.Reason{event.LogRewound, event.LogUncertain} {
		for _, lost := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				s.run(t)
				after(time.Second)
				s.append(2)
				after(time.Second)
				s.do(func() {
					// Entries came and went that this gateway never saw.
					s.state.Head = event.ID{Ms: 2000}
					s.state.AddBreak(eventlog.Break{Boundary: s.state.Head, Reach: event.ID{Ms: 2000}, Reason: reason})
					if lost {
						s.entries = s.entries[:1]
					}
				})
				after(10 * time.Second)
				calls := []string{"start 1000-0", "entry 1000-1", "entry 1000-2", "reset 2000-0 " + string(reason)}
				if lost && reason == event.LogRewound {
					calls = slices.Insert(calls, 3, "suspect 1000-2")
				}
				want(t, s, calls...)
			})
		}
	}
}

func TestFrozenGatewayAsksBeforeItDispatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(time.Second)
		s.do(func() { s.slow = time.Minute }) // the answer takes longer than the window
		s.append(1)
		after(time.Second)
		s.append(2)
		s.sweep(event.ID{Ms: 1000, Seq: 2})
		// The watchdog, too, was frozen: the reader must notice by itself.
		after(61 * time.Second)
		s.do(func() { s.slow = 0 })
		after(time.Hour)
		calls := s.seen()
		if len(calls) != 3 || calls[1] != "overtaken 1000-2" || calls[2] != "entry 1000-3" {
			t.Errorf("calls: %v", calls)
		}
	})
}

// TestStaleReaderAsks is the same without a watchdog's help.
func TestStaleReaderAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		r := newReader(s, s, Options{Window: 10 * time.Second, Watch: time.Hour, Metrics: NewMetrics(nil), Logger: discard()}, 0, 1, []int{0})
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.append(3)
		s.sweep(event.ID{Ms: 1000, Seq: 2})
		after(6 * time.Second) // frozen for more than half the window
		if err := r.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, s, "start 1000-0", "overtaken 1000-2", "entry 1000-3")
	})
}

// TestAShardForWhichThereWasNoRoom may hold unread entries since long.
func TestAShardForWhichThereWasNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		r := newReader(s, s, Options{Window: 10 * time.Second, Watch: time.Hour, Metrics: NewMetrics(nil), Logger: discard()}, 0, 1, []int{0})
		step := func() {
			t.Helper()
			if err := r.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.do(func() { s.full = true })
		after(6 * time.Second)
		step()
		want(t, s, "start 1000-0")
		s.do(func() { s.full = false })
		s.append(3)
		s.sweep(event.ID{Ms: 1000, Seq: 2})
		step()
		step()
		want(t, s, "start 1000-0", "overtaken 1000-2", "entry 1000-3")
	})
}

func TestHeadMovesAndTheTailDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		after(time.Second)
		s.do(func() { s.deaf = true })
		s.append(1)
		after(4 * time.Second) // three rounds of the watchdog
		if tail.Ready() {
			t.Error("ready although the tail is stuck")
		}
		after(10 * time.Second)
		if tail.Ready() {
			t.Error("ready although reading anew found nothing either")
		}
		s.do(func() { s.deaf = false })
		after(5 * time.Second)
		if !tail.Ready() {
			t.Error("not ready although the tail runs again")
		}
		want(t, s, "start 1000-0", "entry 1000-1")
	})
}

// TestAHeadThatIsAlwaysAheadIsNoAlarm: while events are frequent the watchdog
// often finds the head a little ahead of a position that moves.
func TestAHeadThatIsAlwaysAheadIsNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		r := newReader(s, s, Options{Window: time.Minute, Watch: time.Hour, Metrics: NewMetrics(nil), Logger: discard()}, 0, 1, []int{0})
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 * stuckRounds {
			s.append(1)
			if err := r.round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.ToFloat64(r.opts.Metrics.Restarts); n != 0 || r.stuck.Load() != 0 {
			t.Errorf("the tail moves, and was begun anew %v times", n)
		}
	})
}

func TestNewestEntryRemovedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		after(time.Second)
		s.do(func() { s.state.Head = s.state.Head.Next() }) // appended, and gone before it was read
		after(time.Minute)
		want(t, s, "start 1000-0", "reset 1000-1 window-expired")
		if !tail.Ready() {
			t.Error("not ready")
		}
	})
}

// TestDemotedPrimary: a server that was demoted still answers reads, of another
// history. Nothing is dispatched until the watchdog's question is answered.
func TestDemotedPrimary(t *testing.T) {
	for name, cut := range map[string]bool{"with a new connection": true, "over the old one": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				tail := s.run(t)
				after(time.Second)
				s.append(1)
				after(time.Second)
				if cut {
					s.do(func() { s.away = true })
					after(time.Second)
				}
				s.do(func() { s.away, s.demoted = false, true })
				after(3 * time.Second)
				s.append(1)
				after(time.Minute)
				want(t, s, "start 1000-0", "entry 1000-1")
				if reachable(tail) {
					t.Error("nothing says that delivery waits")
				}
				s.do(func() { s.demoted = false })
				after(5 * time.Second)
				want(t, s, "start 1000-0", "entry 1000-1", "entry 1000-2")
			})
		})
	}
}

func TestAnotherLayoutIsFinal(t *testing.T) {
	mismatch := &eventlog.MismatchError{Setting: "shards"}
	for name, fail := range map[string]func(*source){
		"from the start": func(s *source) { s.refuse = mismatch },
		"later":          func(*source) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				fail(s)
				tail := New(s, s, Options{Window: time.Minute, Watch: time.Second, Metrics: NewMetrics(nil), Logger: discard()})
				done := make(chan error, 1)
				go func() { done <- tail.Run(t.Context()) }()
				after(3 * time.Second)
				s.do(func() { s.refuse = mismatch })
				if err := <-done; !errors.Is(err, mismatch) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

func TestNobodyIsToldTwiceAtOneHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(time.Second)
		s.append(1)
		after(time.Second)
		s.do(func() {
			s.entries = nil
			s.state.Head = event.ID{Ms: 2000}
			s.state.AddBreak(eventlog.Break{Boundary: event.ID{Ms: 1500}, Reach: event.ID{Ms: 9000}, Reason: event.LogRewound})
		})
		after(time.Hour)
		want(t, s, "start 1000-0", "entry 1000-1", "suspect 1000-1", "reset 2000-0 log-rewound")
	})
}
