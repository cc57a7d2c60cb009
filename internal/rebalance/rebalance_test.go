package rebalance

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

const usual = 5 * time.Minute // rebalance_after

// TestScaleUp: gateways were added, and hold nothing. Whatever the load balancer
// does, the fleet evens out at the rate and stops, and no device is let go twice.
func TestScaleUp(t *testing.T) {
	for name, way := range map[string]struct {
		choose  func(*gateway, []*gateway) *gateway
		most    int // are moved, of 2,700 devices
		reached time.Duration
	}{
		// The surplus above the mean.
		"least connections": {least, 3*(900-540) + 10, 80 * time.Second},
		// Each move is a new draw of one in five: to be even, nearly all are drawn anew.
		"at random": {atRandom, 2700, 180 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 20, usual, way.choose, 900, 900, 900)
				w.pass(6 * time.Minute)
				w.launch()
				w.launch()
				w.pass(5*time.Minute - 2*round)
				if n := w.gone(); n != 0 {
					t.Fatalf("%d were let go before the fleet had settled", n)
				}
				w.pass(2*round + way.reached)
				if why := w.uneven(); why != "" {
					t.Errorf("after %v: %s", way.reached, why)
				}
				w.pass(2 * time.Minute) // it goes on to the mean
				n := w.gone()
				w.pass(time.Hour)
				if more := w.gone() - n; more > 0 {
					t.Errorf("%d more were let go later: %v", more, w.counts())
				}
				if n > way.most || w.moves() != 1 {
					t.Errorf("%d of 2700 were let go, one of them %d times", n, w.moves())
				}
				if most := w.fastest(10 * time.Second); most > 20*12 {
					t.Errorf("%d were let go within 10 s, at 20 a second", most)
				}
				t.Logf("%d of 2700 were let go; then there were %v", n, w.counts())
			})
		})
	}
}

// TestCrash: one of three gateways crashes and comes back with nothing. The others
// don't hurry, and none gives more than it has above the mean.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, usual, least, 1000, 1000, 1000)
		w.pass(6 * time.Minute)
		w.crash(0)
		w.pass(time.Minute)
		if n := w.gone(); n != 0 {
			t.Fatalf("%d were let go by a fleet that is even", n)
		}
		w.launch()
		w.pass(20 * time.Minute)
		if why := w.uneven(); why != "" {
			t.Error(why)
		}
		// 500 of each have just come, and aren't asked to move again.
		if most := w.fastest(10 * time.Second); most > 10*12 || w.moves() != 1 {
			t.Errorf("%d were let go within 10 s, at 10 a second; one of them %d times", most, w.moves())
		}
		if n := w.gone(); n < 900 || n > 1020 {
			t.Errorf("%d were let go, to move 1000", n)
		}
		t.Logf("%d were let go; then there were %v", w.gone(), w.counts())
	})
}

// TestAnyFleet: whatever the fleet and the load balancer, nobody gives below the
// mean or faster than the rate, and it comes to an end. A gateway may crash.
func TestAnyFleet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(0, 100), 2, 6).Draw(rt, "counts")
		rate := rapid.IntRange(10, 100).Draw(rt, "rate")
		choose := map[string]func(*gateway, []*gateway) *gateway{"random": atRandom, "least": least, "sticky": sticky}
		how := rapid.SampledFrom([]string{"random", "least", "sticky"}).Draw(rt, "balancer")
		crashes := rapid.Bool().Draw(rt, "crashes") && how != "sticky"
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, rate, 20*time.Second, choose[how], counts...)
			w.pass(25 * time.Second)
			if crashes {
				w.crash(rand.IntN(len(counts)))
				w.launch()
			}
			w.pass(5 * time.Minute)
			n := w.gone()
			w.pass(time.Minute)
			if more := w.gone() - n; more > 0 || how != "sticky" && w.uneven() != "" {
				rt.Errorf("%d more; %s", more, w.uneven())
			}
			if most := w.fastest(10 * time.Second); most > rate*12+len(counts) {
				rt.Errorf("%d within 10 s, at %d a second by %d gateways", most, rate, len(counts))
			}
			for _, e := range w.ends {
				if e.under {
					rt.Errorf("at %v a gateway below the mean let a stream go", e.at)
				}
			}
			if limit := sample * len(counts); how == "sticky" && w.gone() > limit {
				rt.Errorf("%d were let go, and all came straight back", w.gone())
			}
		})
	})
}

// TestNobodyIsLetGo: why it isn't, case by case, and what is said then.
func TestNobodyIsLetGo(t *testing.T) {
	for name, c := range map[string]struct {
		counts  []int
		make    func(*world)
		want    State
		surplus int
	}{
		"nothing is to be done":     {[]int{300, 250, 300}, nil, Even, 0},
		"chance explains it":        {[]int{10, 0, 8}, nil, Even, 0},
		"nobody has anything":       {[]int{0, 0}, nil, Even, 0},
		"it is off":                 {[]int{900, 0, 0}, nil, Off, 600},
		"there is nobody else":      {[]int{900}, nil, Alone, 0},
		"the board is away":         {[]int{900, 0, 0}, func(w *world) { w.board.setAway(true) }, Unknown, 0},
		"the others are full":       {[]int{900, 0, 0}, func(w *world) { w.set(&w.most, 0) }, Full, 600},
		"it takes no devices":       {[]int{900, 0, 0}, func(w *world) { w.fleet[0].setAbsent(true) }, Absent, 0},
		"everybody has just come":   {[]int{0, 0, 0}, func(w *world) { w.crowd(w.fleet[0], 900) }, Settling, 600},
		"a gateway has just come":   {[]int{300, 300}, func(w *world) { w.launch(); w.launch(); w.launch() }, Settling, 180},
		"rubbish is on the board":   {[]int{300}, func(w *world) { w.shout("a", "0", "b", "-1 5 0", "c", "x y z", "d", "99999999999 1 0", "e", "") }, Alone, 0},
		"somebody else shouts once": {[]int{300, 300}, func(w *world) { w.shout("a", "0 5000 0", "b", "0 5000 0") }, Settling, 150},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0, usual, least, c.counts...)
				w.pass(10*time.Minute + time.Second) // between two rounds
				if c.make != nil {
					c.make(w)
				}
				if w.pass(round); c.want != Off {
					w.set(&w.rate, 10)
				}
				w.pass(noted + 2*round)
				if n := w.gone(); n > 0 {
					t.Errorf("%d were let go", n)
				}
				w.expect(w.fleet[0], c.want, c.surplus)
			})
		})
	}
}

// expect holds what a gateway says of itself against what it should.
func (w *world) expect(g *gateway, want State, surplus int) {
	w.t.Helper()
	s, m := g.Status(), g.opts.Metrics
	if s.State != want || s.Surplus != surplus {
		w.t.Errorf("status %+v", s)
	}
	for state, gauge := range m.states {
		if is := testutil.ToFloat64(gauge) == 1; is != (state == want) {
			w.t.Errorf("downlink_rebalance_state of %s: %v", state, is)
		}
	}
	if got := testutil.ToFloat64(m.surplus); int(got) != surplus {
		w.t.Errorf("downlink_rebalance_surplus_streams is %v", got)
	}
}

// TestTheOthersGo: a gateway that is left alone stops, at once if the others say
// that they go, and when their word has had its time if they can't.
func TestTheOthersGo(t *testing.T) {
	for name, c := range map[string]struct {
		go_  func(w *world)
		most int
	}{
		"in order": {func(w *world) { w.fleet[1].setAbsent(true) }, 10 * 2},
		"by crash": {func(w *world) { w.crash(1) }, 10 * 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0, usual, least, 900, 0)
				w.pass(10*time.Minute + time.Second)
				w.set(&w.rate, 10)
				c.go_(w)
				w.pass(noted + 2*round)
				w.expect(w.fleet[0], Alone, 0)
				if n := w.gone(); n > c.most {
					t.Errorf("%d were let go", n)
				}
			})
		})
	}
}

// shout puts words on the board under names that no gateway has, for a minute.
func (w *world) shout(namesAndWords ...string) {
	for pair := range slices.Chunk(namesAndWords, 2) {
		if _, err := w.board.Post(w.t.Context(), pair[0], pair[1], time.Minute); err != nil {
			w.t.Error(err)
		}
	}
}

// TestGoingAway: a gateway that loses the board, its place or its permission in the
// middle stops at once, and goes on later.
func TestGoingAway(t *testing.T) {
	for name, change := range map[string]func(w *world, away bool){
		"the board": func(w *world, away bool) { w.board.setAway(away) },
		"its place": func(w *world, away bool) { w.fleet[0].setAbsent(away) },
		"the rate": func(w *world, away bool) {
			w.set(&w.rate, map[bool]int{true: 0, false: 10}[away])
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 10, usual, least, 900, 0, 0)
				w.pass(6*time.Minute + time.Second)
				change(w, true)
				w.pass(round)
				before := w.gone()
				if before < 50 || before > 600-100 {
					t.Fatalf("%d were let go by then", before)
				}
				w.pass(10 * time.Minute)
				if n := w.gone(); n != before {
					t.Errorf("%d were let go meanwhile", n-before)
				}
				change(w, false)
				w.pass(10 * time.Minute)
				if why := w.uneven(); why != "" || w.moves() != 1 {
					t.Errorf("%s; a device was moved %d times", why, w.moves())
				}
			})
		})
	}
}

// TestComingStraightBack: where each device is always sent to the same gateway it
// helps nobody to let some go, so fifty an hour are, to see.
func TestComingStraightBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, usual, sticky, 900, 0, 0)
		w.pass(6 * time.Minute)
		if s := w.fleet[0].Status(); s.State != Returning || s.Surplus != 600 || w.gone() != sample {
			t.Errorf("%+v; %d were let go", s, w.gone())
		}
		w.pass(3 * time.Hour)
		if n := w.gone(); n < 3*sample || n > 4*sample {
			t.Errorf("%d were let go in 3 hours", n)
		}
		w.mu.Lock()
		w.choose = least // somebody has seen to it
		w.mu.Unlock()
		w.pass(2 * time.Hour)
		if why := w.uneven(); why != "" {
			t.Error(why)
		}
	})
}

// TestFewComeStraightBack: it is seen also where there aren't fifty to try it with.
func TestFewComeStraightBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, usual, sticky, 40, 0)
		w.pass(6*time.Minute + time.Second)
		if n := w.gone(); n < 20 || n > 40 { // as many as were old
			t.Errorf("%d were let go", n)
		}
		w.pass(14 * time.Minute)
		w.expect(w.fleet[0], Returning, 20)
		w.pass(30 * time.Minute)
		if n := w.gone(); n != sample {
			t.Errorf("%d were let go", n)
		}
	})
}

// TestSlowGoodbyes: streams whose last word is taken slowly aren't let go again.
func TestSlowGoodbyes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 50, usual, least, 600, 0)
		w.mu.Lock()
		w.slow = 20 * time.Second
		w.mu.Unlock()
		w.pass(10 * time.Minute)
		if n := w.gone(); n < 250 || n > 310 {
			t.Errorf("%d were let go, to move 300: %v", n, w.counts())
		}
	})
}

// TestCrashWhileTrying: devices that come back because the others crash don't count
// as coming straight back.
func TestCrashWhileTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, usual, least, 300, 0)
		w.pass(usual + 9*time.Second)
		if n := w.counts()[1]; n != sample {
			t.Fatalf("%d have moved by then", n)
		}
		w.crash(1)
		w.pass(10 * time.Second)
		w.launch()
		w.pass(10 * time.Minute)
		if why := w.uneven(); why != "" || w.fleet[0].Status().State != Even {
			t.Errorf("%s; %+v", why, w.fleet[0].Status())
		}
	})
}

// TestSingle: with the embedded log nothing happens, and it is said.
func TestSingle(t *testing.T) {
	b := New(Options{Single: true, Metrics: NewMetrics(nil)})
	if s := b.Status(); s.State != Single || testutil.ToFloat64(b.opts.Metrics.states[Single]) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestWords: what is read is what was said, and nothing else is.
func TestWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, mostSaid)
		said := word{n.Draw(t, "streams"), n.Draw(t, "room"), n.Draw(t, "away")}
		for _, text := range []string{said.String(), said.String() + " 7"} { // a later version may say more
			if heard, ok := readWord(text); !ok || heard != said {
				t.Errorf("%q was read as %v, %v", text, heard, ok)
			}
		}
	})
	for _, text := range []string{"", "1 2", "1,2,3", "-1 2 3", "1 -2 3", "+1 2 3", " 1 2 3", "1  2 3", "1000000001 2 3", "1 1000000001 3", "1 2 1000000001", "1e3 2 3", "99999999999999999999 1 3"} {
		if w, ok := readWord(text); ok {
			t.Errorf("%q was read as %v", text, w)
		}
	}
}

// TestElsewhere: for how many streams the others have room is known while they say
// so.
func TestElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, usual, least, 300, 100)
		w.shout("c", "500 7 0")
		w.pass(2*round + time.Second)
		if n := w.fleet[0].Elsewhere(); n != w.fleet[1].opts.Most()-100+7 {
			t.Errorf("room for %d", n)
		}
		w.board.setAway(true)
		w.pass(2 * round)
		if n := w.fleet[0].Elsewhere(); n != 0 {
			t.Errorf("room for %d, and nobody says so", n)
		}
	})
}
