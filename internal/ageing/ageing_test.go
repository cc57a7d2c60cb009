package ageing

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nobody is woken.
type nobody struct{}

func (nobody) Wake()                            {}
func (nobody) Peer() (address, protocol string) { return "", "" }

func newSession() *session.Session { return session.New("a", nobody{}, &session.Options{}) }

// kept is a book that is kept until the test has ended.
func kept(t *testing.T) *Book {
	b := New()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestDates: each session ends at its time, never before, whatever order the
// dates were entered in; the first of several counts, and a struck one doesn't.
func TestDates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kept(t)
		const n = 500
		sessions := make([]*session.Session, n)
		for i, place := range rand.Perm(n) {
			sessions[place] = newSession()
			after := time.Duration(place+1) * time.Second
			b.Enter(sessions[place], after, session.Lifetime, 0)
			if i%5 == 0 {
				b.Enter(sessions[place], after+time.Hour, session.Expired, 0) // too late to count
			}
		}
		struck := newSession()
		d := b.Enter(struck, 3*time.Second, session.Lifetime, 0)
		time.Sleep(2 * time.Second) //nolint:forbidigo // in a bubble
		d.Strike()
		d.Strike()
		(*Date)(nil).Strike()
		for i := 2; i <= n; i++ {
			synctest.Wait()
			for place, s := range sessions {
				if want := place < i; (s.Ended() != "") != want {
					t.Fatalf("after %d s the session of %d s has ended: %v", i, place+1, !want)
				}
			}
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		}
		if struck.Ended() != "" || sessions[0].Ended() != session.Lifetime {
			t.Errorf("%q, %q", struck.Ended(), sessions[0].Ended())
		}
		time.Sleep(2 * time.Hour) //nolint:forbidigo // in a bubble
		if b.Len() != 0 {
			t.Errorf("%d dates are left", b.Len())
		}
	})
}

// TestTimesThatNeverCome: what lies in centuries doesn't come now, and what is
// past comes at once.
func TestTimesThatNeverCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kept(t)
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
		late, past := newSession(), newSession()
		b.Enter(late, math.MaxInt64, session.Expired, 0)
		b.Enter(past, -time.Hour, session.Expired, 7*time.Second)
		time.Sleep(2 * grain) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if late.Ended() != "" || past.Ended() != session.Expired || past.Retry() != 7*time.Second {
			t.Errorf("%q, %q, retry %v", late.Ended(), past.Ended(), past.Retry())
		}
	})
}

// TestWhatADateCosts: a fleet whose tokens expire has a date for each device.
func TestWhatADateCosts(t *testing.T) {
	const n = 20_000
	b, s := New(), newSession()
	all := make([]*Date, n)
	before := live(t)
	for i := range all {
		all[i] = b.Enter(s, time.Hour+time.Duration(i), session.Expired, 0)
	}
	each := float64(live(t)-before) / n
	t.Logf("%.0f bytes a date", each)
	if each > 100 {
		t.Errorf("%.0f bytes a date, allowed are 100", each)
	}
	for _, d := range all {
		d.Strike()
	}
	if b.Len() != 0 {
		t.Errorf("%d dates are left", b.Len())
	}
}

func live(t *testing.T) int64 {
	t.Helper()
	var m runtime.MemStats
	for range 2 { // the first one may have been running already
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
