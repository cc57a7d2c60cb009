package lease

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// all is shards 0 to n-1.
func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// sole is one member with everything.
func sole(t *testing.T, shards int, change func(*Options)) (*memory, *gateway) {
	keeper := newMemory(shards)
	g := start(t, keeper, "a", shards, change)
	pass(modelTTL / 3)
	if diff := cmp.Diff(all(shards), g.live()); diff != "" {
		t.Fatalf("the only member doesn't have everything:\n%s\n%+v", diff, g.Status())
	}
	return keeper, g
}

func TestDeadlineCountsFromBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, g := sole(t, 2, nil)
		keeper.change(func() { keeper.cut[g.who.Nonce] = true })
		ends := time.Time{}
		keeper.change(func() { ends = keeper.leases[0].ends })
		l, _ := g.Lease(0)
		if ahead := ends.Sub(l.Deadline); ahead < modelTTL/20 || ahead > modelTTL/10 {
			t.Errorf("the lease ends %v before it does for the keeper", ahead)
		}
		pass(time.Until(l.Deadline))
		if l, ok := g.Lease(0); !ok || l.Live(time.Now()) {
			t.Errorf("past the deadline: %+v, %v", l, ok)
		}
		pass(modelTTL)
		if _, lets := g.note(); len(lets) > 0 {
			t.Errorf("connections are let go of while the keeper is away: %v", lets)
		}
		if n := testutil.ToFloat64(g.metrics().lost[LossExpired]); n != 2 {
			t.Errorf("%v leases are counted as expired", n)
		}
		before, _ := g.note()
		keeper.change(func() { delete(keeper.cut, g.who.Nonce) })
		pass(modelTTL / 3)
		after, lets := g.note()
		if len(g.live()) != 2 || len(lets) > 0 || len(after) != len(before)+2 {
			t.Errorf("after the outage: live %v, let %v, taken %v", g.live(), lets, after)
		}
		g.leave()
		g.check(t)
		if left := keeper.owners(); len(left) > 0 {
			t.Errorf("leases are left: %v", left)
		}
	})
}

// TestShortOutage: a lease that hasn't run out is renewed as it was.
func TestShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, g := sole(t, 2, nil)
		keeper.change(func() { keeper.cut[g.who.Nonce] = true })
		pass(modelTTL / 2)
		keeper.change(func() { delete(keeper.cut, g.who.Nonce) })
		pass(2 * modelTTL)
		if took, lets := g.note(); len(took) != 2 || len(lets) > 0 || len(g.live()) != 2 {
			t.Errorf("taken %v, let %v, live %v", took, lets, g.live())
		}
		g.leave()
		g.check(t)
	})
}

// TestReleaseBeforeAcquire: a shard moves only when its owner has let go of it,
// however long that takes, and its lease is renewed meanwhile.
func TestReleaseBeforeAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, a := sole(t, 8, nil)
		a.mu.Lock()
		a.hold = 3 * modelTTL
		a.mu.Unlock()
		b := start(t, keeper, "b", 8, func(o *Options) { o.Moves = 8 })
		const theirs = 4
		pass(2 * modelTTL)
		if took, _ := b.note(); len(took) > 0 {
			t.Errorf("b has taken %v while a was letting go", took)
		}
		if moving := a.Status().Moving; moving != theirs {
			t.Errorf("%d shards are on the move, want %d", moving, theirs)
		}
		pass(8 * modelTTL)
		if took, _ := b.note(); len(took) != theirs || len(b.live()) != theirs || len(a.live()) != 8-theirs || a.Status().Moving != 0 {
			t.Errorf("in the end b took %v, a has %v, b %v", took, a.live(), b.live())
		}
		a.leave()
		b.leave()
		a.check(t)
		b.check(t)
	})
}

// TestFlapping: a member that comes and goes moves nothing.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, a := sole(t, 8, nil)
		for range 15 { // it begins and ends at other moments of a's rhythm each time
			b := start(t, keeper, "b", 8, nil)
			pass(modelTTL / 6)
			b.leave()
		}
		pass(modelTTL)
		if _, lets := a.note(); len(lets) > 0 {
			t.Errorf("a has let go of shards: %v", lets)
		}
		a.leave()
		a.check(t)
	})
}

// TestHandover: when a member leaves, its shards have no owner for two seconds
// at most; after a crash it is the TTL and a third.
func TestHandover(t *testing.T) {
	for name, c := range map[string]struct {
		crash bool
		most  time.Duration
	}{"leave": {false, 2 * time.Second}, "crash": {true, modelTTL * 4 / 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keeper, a := sole(t, 8, nil)
				b := start(t, keeper, "b", 8, nil)
				pass(2 * modelTTL)
				if len(a.live()) == 0 || len(a.live())+len(b.live()) != 8 {
					t.Fatalf("a has %v, b %v", a.live(), b.live())
				}
				if c.crash {
					keeper.change(func() { keeper.cut[a.who.Nonce] = true })
				}
				a.stop()
				began, without := time.Now(), time.Duration(0)
				for len(b.live()) < 8 {
					pass(50 * time.Millisecond)
					if c.crash {
						without = time.Since(began)
					} else if len(a.live())+len(b.live()) < 8 {
						without += 50 * time.Millisecond
					}
				}
				if without > c.most {
					t.Errorf("shards had no owner for %v", without)
				}
				<-a.done
				b.leave()
				a.check(t)
				b.check(t)
			})
		})
	}
}

// TestFrozen: who was frozen past its deadline writes nothing when it thaws, and
// lets go of what another has taken meanwhile.
func TestFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, a := sole(t, 4, nil)
		old, _ := a.Lease(0)
		keeper.change(func() { keeper.cut[a.who.Nonce] = true })
		pass(modelTTL / 2)
		b := start(t, keeper, "b", 4, nil)
		pass(2 * modelTTL)
		if len(a.live()) > 0 || len(b.live()) != 4 || old.Live(time.Now()) {
			t.Fatalf("a may write to %v, b to %v", a.live(), b.live())
		}
		keeper.change(func() { delete(keeper.cut, a.who.Nonce) })
		pass(modelTTL / 6)
		if _, lets := a.note(); !slices.Equal(lets, slices.Repeat([]Loss{LossTaken}, 4)) {
			t.Errorf("a let go of %v", lets)
		}
		a.leave()
		b.leave()
		a.check(t)
		b.check(t)
	})
}

// TestTakenAndGivenBack: whoever couldn't ask for so long that another came and
// went has lost its connections, whatever the lease says: the devices have left
// them for the other one.
func TestTakenAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, a := sole(t, 4, nil)
		keeper.change(func() { keeper.cut[a.who.Nonce] = true })
		b := start(t, keeper, "b", 4, nil)
		pass(2 * modelTTL)
		if len(b.live()) != 4 {
			t.Fatalf("b may write to %v", b.live())
		}
		b.leave()
		keeper.change(func() { delete(keeper.cut, a.who.Nonce) })
		pass(modelTTL)
		if _, lets := a.note(); !slices.Equal(lets, slices.Repeat([]Loss{LossTaken}, 4)) {
			t.Errorf("a let go of %v", lets)
		}
		if len(a.live()) != 4 {
			t.Errorf("after a TTL a has only %v again", a.live())
		}
		a.leave()
		a.check(t)
		b.check(t)
	})
}

func TestNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, a := sole(t, 4, nil)
		second := start(t, keeper, "a", 4, nil)
		<-second.done
		if !errors.Is(second.err, ErrNameTaken) {
			t.Errorf("a second process of the name ended with %v", second.err)
		}
		if len(a.live()) != 4 {
			t.Errorf("the first one has %v", a.live())
		}
		// One that has crashed has its name until its membership runs out.
		keeper.change(func() { keeper.cut[a.who.Nonce] = true })
		third := start(t, keeper, "a", 4, nil)
		pass(2 * modelTTL)
		if len(third.live()) != 4 {
			t.Errorf("the third one has %v", third.live())
		}
		keeper.change(func() { delete(keeper.cut, a.who.Nonce) })
		<-a.done
		if took, lets := a.note(); !errors.Is(a.err, ErrNameTaken) || len(lets) != len(took) {
			t.Errorf("the first one took %v, let go of %v, and ended with %v", took, lets, a.err)
		}
		third.leave()
		for _, g := range []*gateway{a, second, third} {
			g.check(t)
		}
	})
}

// TestOutranked: a device that has seen a higher generation is heard, unless it
// makes one up.
func TestOutranked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g := sole(t, 2, nil)
		l, _ := g.Lease(1)
		g.Outranked(1, l.Generation+70_000)
		g.Outranked(0, 1<<62)
		pass(modelTTL / 5)
		raised, _ := g.Lease(1)
		other, _ := g.Lease(0)
		if raised.Generation <= l.Generation+70_000 || other.Generation > uint64(time.Now().UnixMilli()) {
			t.Errorf("%+v became %+v, and the other one is %+v", l, raised, other)
		}
		if n := testutil.ToFloat64(g.metrics().lost[LossGone]); n != 0 {
			t.Errorf("%v leases are counted as gone", n)
		}
		g.leave()
		g.check(t)
	})
}

// TestClockBehind: a keeper that has lost everything, and whose clock is behind,
// gives no lower generation to who has had a higher one.
func TestClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, g := sole(t, 2, nil)
		before, _ := g.Lease(0)
		keeper.change(func() {
			keeper.behind = time.Hour
			clear(keeper.leases)
			clear(keeper.records)
		})
		pass(modelTTL / 2)
		if now, ok := g.Lease(0); !ok || now.Generation != before.Generation+1 {
			t.Errorf("%+v became %+v", before, now)
		}
		b := start(t, keeper, "b", 2, nil)
		pass(modelTTL)
		keeper.change(func() {
			keeper.cut[b.who.Nonce] = true
			clear(keeper.leases)
			clear(keeper.records)
		})
		pass(2 * modelTTL)
		if took, _ := g.note(); len(g.live()) != 2 || took[len(took)-1].Generation <= before.Generation {
			t.Errorf("%+v, and then %+v", before, took)
		}
		g.leave()
		g.check(t)
		keeper.change(func() { delete(keeper.cut, b.who.Nonce) })
		b.leave()
	})
}

// TestLetIsBounded: a Let that takes too long is told to end, and a keeper that
// is away doesn't keep a member from leaving.
func TestLetIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper, g := sole(t, 2, nil)
		g.mu.Lock()
		g.hold = time.Hour
		g.mu.Unlock()
		keeper.change(func() { keeper.cut[g.who.Nonce] = true })
		began := time.Now()
		g.leave()
		if took := time.Since(began); g.err != nil || took > 15*time.Second {
			t.Errorf("leaving took %v: %v", took, g.err)
		}
		g.check(t)
	})
}

// TestLeavingWithoutAKeeper: what a keeper that is away can't release has run out
// a TTL later, so that nobody waits for longer; who asks twice waits for one call.
func TestLeavingWithoutAKeeper(t *testing.T) {
	for name, most := range map[string]time.Duration{"asked once": modelTTL * 3 / 2, "asked twice": modelTTL / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				haste := make(chan struct{})
				keeper, g := sole(t, 2, func(o *Options) { o.Leave, o.Haste = time.Hour, haste })
				keeper.change(func() { keeper.cut[g.who.Nonce] = true })
				if name == "asked twice" {
					close(haste)
				}
				began := time.Now()
				g.leave()
				if took := time.Since(began); g.err != nil || took > most {
					t.Errorf("leaving took %v: %v", took, g.err)
				}
				g.check(t)
			})
		})
	}
}
