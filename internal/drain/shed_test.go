package drain

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/ageing"
	"downlink/internal/session"
)

// A pressed fleet is one of which only so many streams are allowed. Times are
// since it began.
type pressedFleet struct {
	*fleet

	mu      sync.Mutex
	allowed int
	rate    int
	busy    bool
	first   time.Duration
	back    float64
}

// press sheds a fleet's surplus, as a gateway's flow does.
func press(t *testing.T, f *fleet, allowed, rate int) *pressedFleet {
	p := &pressedFleet{fleet: f, allowed: allowed, rate: rate, first: time.Minute, back: 10}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	locked := func(do func()) { p.mu.Lock(); defer p.mu.Unlock(); do() }
	running.Go(func() {
		_ = Shed(ctx, ShedOptions{
			Surplus: func() (n int, why string) {
				locked(func() { n = max(f.roster.Living()-p.allowed, 0) })
				return n, "tail_lag is 5000 entries"
			},
			Busy: func() (busy bool) { locked(func() { busy = p.busy }); return busy },
			Rate: func() (rate int) { locked(func() { rate = p.rate }); return rate },
			Back: func(int) (first time.Duration, perSecond float64) {
				locked(func() { first, perSecond = p.first, p.back })
				return first, perSecond
			},
			After: 2 * time.Minute, Retry: baseRetry,
			Roster: f.roster, Ages: f.ages, Metrics: f.metrics, Logger: slog.New(slog.DiscardHandler),
		})
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

func (p *pressedFleet) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// shedOnes are the devices that were let go.
func (p *pressedFleet) shedOnes() (gone []*device) {
	for _, d := range p.all {
		if d.session.Ended() == session.Shed {
			gone = append(gone, d)
		}
	}
	return gone
}

// TestShed: the surplus is let go at the rate, nobody else is, and who was let go
// comes back when there may be a place, one after the other.
func TestShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1000, nil)
		p := press(t, f, 400, 50)
		f.sleep(2 * time.Minute)
		if n := len(p.shedOnes()); n > 0 {
			t.Fatalf("%d were let go that had just come", n)
		}
		f.sleep(time.Hour)
		gone := p.shedOnes()
		if len(gone) != 600 || f.roster.Len() != 400 {
			t.Fatalf("%d were let go, %d are left", len(gone), f.roster.Len())
		}
		var ended, back []time.Duration
		for _, d := range gone {
			ended, back = append(ended, d.ended), append(back, d.ended+d.retry)
			if d.retry < time.Minute+baseRetry/2 {
				t.Fatalf("a device comes back after %v, and there is no place before a minute", d.retry)
			}
		}
		// 50 a second; 10 a second have a place again.
		if took := slices.Max(ended) - slices.Min(ended); took < 11*time.Second || took > 13*time.Second {
			t.Errorf("it took %v", took)
		}
		if most := peak(ended); most > 100 {
			t.Errorf("%d were let go within a second", most)
		}
		if took := slices.Max(back) - slices.Min(back); took < 55*time.Second || took > 65*time.Second {
			t.Errorf("they come back within %v", took)
		}
		if most := peak(back); most > 30 {
			t.Errorf("%d come back within a second", most)
		}
		if n := testutil.ToFloat64(f.metrics.Surplus); n != 0 {
			t.Errorf("a surplus of %v is left", n)
		}
	})
}

// TestNotShed: nobody is let go by a rate of 0, which says all the same how many
// would be, nor while streams are let go for another reason; and it ends when the
// ratio rises.
func TestNotShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 100, nil)
		p := press(t, f, 40, 0)
		f.sleep(5 * time.Minute)
		if n := testutil.ToFloat64(f.metrics.Surplus); len(p.shedOnes()) > 0 || n != 60 {
			t.Errorf("%d were let go, and the surplus is %v", len(p.shedOnes()), n)
		}
		p.set(func() { p.rate, p.busy = 5, true })
		f.sleep(time.Minute)
		if n := len(p.shedOnes()); n > 0 {
			t.Errorf("%d were let go beside others", n)
		}
		p.set(func() { p.busy = false })
		f.sleep(4 * time.Second)
		p.set(func() { p.allowed = 100 })
		f.sleep(time.Minute)
		if n := len(p.shedOnes()); n < 10 || n > 25 || testutil.ToFloat64(f.metrics.Surplus) != 0 {
			t.Errorf("%d were let go", n)
		}
	})
}

// TestShedElsewhere: if others have room, a device comes back as after any end; and
// one that came back isn't let go again at once.
func TestShedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 100, nil)
		p := press(t, f, 50, 100)
		p.set(func() { p.back = 0 })
		f.sleep(2*time.Minute + 3*time.Second)
		gone := p.shedOnes()
		for _, d := range gone {
			if d.retry > 3*time.Second {
				t.Fatalf("a device stays away for %v although there is room elsewhere", d.retry)
			}
			f.come(0)
		}
		if len(gone) != 50 {
			t.Fatalf("%d were let go", len(gone))
		}
		f.sleep(time.Minute)
		for _, d := range f.all[100:] {
			if d.session.Ended() != "" {
				t.Fatal("a device was let go again as soon as it was back")
			}
		}
	})
}

// TestTheLineIsBounded: however many are told to stay away, nobody is for longer than
// some minutes, and then there is no line any more.
func TestTheLineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		for range 10_000 {
			if retry := away(l.join(1), baseRetry); retry > farthest+2*baseRetry {
				t.Fatalf("told to stay away for %v", retry)
			}
		}
		time.Sleep(farthest + 2*time.Second) //nolint:forbidigo // in a bubble
		if wait := l.join(1); wait > 0 {
			t.Errorf("the line is still %v long", wait)
		}
	})
}

// TestShedCountsWhoIsOnHisWay: a gateway that is too busy to end in time whom it lets
// go lets nobody else go in his place.
func TestShedCountsWhoIsOnHisWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 100, nil)
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
		book := ageing.New()  // that nobody keeps
		s := shedding{going: make(map[*session.Session]struct{}), ShedOptions: ShedOptions{
			Surplus: func() (int, string) { return max(f.roster.Living()-60, 0), "tail_lag is 5000 entries" },
			Busy:    func() bool { return false }, Rate: func() int { return 30 },
			Back:   func(int) (time.Duration, float64) { return 0, 0 },
			Roster: f.roster, Ages: book, Metrics: f.metrics, Logger: slog.New(slog.DiscardHandler),
		}}
		for round, want := range []int{30, 40, 40, 40} {
			s.round()
			if n := book.Len(); n != want {
				t.Errorf("after round %d %d are to go, of 40 that are too many", round, n)
			}
		}
		for x := range s.going {
			x.End(session.ClientGone) // by itself
		}
		if s.round(); book.Len() != 40 || len(s.going) != 0 {
			t.Errorf("%d dates, and %d are still to go", book.Len(), len(s.going))
		}
	})
}
