package gateway

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/config"
	"downlink/internal/governor"
	"downlink/internal/limits"
)

// Shown is a meter and what it was shown.
type shown struct {
	meter
	now           time.Time
	stored, asked uint64
}

func newShown() *shown {
	s := &shown{now: time.Unix(1000, 0)}
	s.read(0, 0, s.now, true)
	return s
}

// pass shows so many entries a second that are stored, and asked for.
func (s *shown) pass(stored, asked, seconds int, open bool) {
	for range seconds {
		s.now, s.stored, s.asked = s.now.Add(time.Second), s.stored+uint64(stored), s.asked+uint64(asked)
		s.read(s.stored, s.asked, s.now, open)
	}
}

func (s *shown) expect(t *testing.T, when string, rate, reference float64) {
	t.Helper()
	near := func(a, b float64) bool { return math.Abs(a-b) <= max(b*0.05, 1) }
	if !near(s.meter.stored.rate, rate) || !near(s.reference(), reference) {
		t.Errorf("%s: %.0f are stored a second and %.0f taken for all, want %v and %v", when, s.meter.stored.rate, s.reference(), rate, reference)
	}
}

// The meter follows what is stored, and remembers the most that was wanted while
// nothing was held back.
func TestMeter(t *testing.T) {
	s := newShown()
	s.pass(5000, 5000, 60, true)
	s.expect(t, "open", 5000, 5000)
	s.pass(500, 20_000, 3600, false) // whoever is refused asks again
	s.expect(t, "held back", 500, 5000)
	s.pass(5000, 5000, 60, true)
	s.pass(0, 20_000, 120, true)
	s.expect(t, "while the log is away", 0, 5000*0.68)
	s.pass(1, 1, 3600, true)
	s.expect(t, "quiet", 1, leastPeak)
	s.pass(20, 20, 60, true) // few but large events fill Redis, too: at its floor, the lever lets fewer through
	s.expect(t, "few", 20, 20)
}

// What is asked for at the beginning counts as wanted where nothing is stored of it:
// while the log is full, or while the lever is at its floor because of others.
func TestMeterLearns(t *testing.T) {
	full := newShown()
	full.pass(0, 1000, 11, true)
	full.pass(0, 1000, 30, false)
	full.expect(t, "a log that is full from the start", 0, 950)

	idle := newShown()
	idle.pass(0, 0, 600, true)
	idle.pass(0, 0, 600, false)
	idle.expect(t, "idle", 0, leastPeak)
	idle.pass(1, 1000, 30, false)
	idle.expect(t, "publishers come from elsewhere", 1, 950)
	idle.pass(50, 50_000, 600, false)
	idle.expect(t, "and are impatient", 50, 950)
}

// Stored and Asked make it a source that is asked for much, of which nothing is stored.
type full struct{ asked uint64 }

func (f *full) Stored() uint64 { return 0 }
func (f *full) Asked() uint64  { return f.asked }

// What publishers may while they are held back follows what the meter learns: a tenth
// of more is more.
func TestAHeldRateFollowsWhatIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, entries := newLevers(limits.New(config.Limits()), nil), new(full)
		l.limits.Bind(publishRate, l.publish.bound(asConfigured))
		lever := l.publishing(entries)
		lever.Set(governor.Position{Ratio: 0.1, Signal: "redis_memory", Why: "it is full"})
		for second := range 30 {
			if most := l.limits.Value(publishRate)(); second == 0 && most != 1 {
				t.Errorf("%d a second of nothing", most)
			}
			lever.Use()
			entries.asked += 1000
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		}
		if most := l.limits.Value(publishRate)(); most < 90 || most > 100 {
			t.Errorf("%d a second of 1000", most)
		}
	})
}
