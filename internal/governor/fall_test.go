package governor

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A Redis that is full and into which nobody writes any more is at the wall, although
// what its clients' buffers take goes up and down; one that is being emptied isn't.
func TestAtTheWall(t *testing.T) {
	p := Defaults(nil)
	g := SignalSettings{Threshold: 0.8, Wall: 0.92}
	for _, c := range []struct {
		slope float64
		want  Verdict
	}{{0, AtWall}, {-0.00001, AtWall}, {-0.0005, Easing}, {0.0001, AtWall}} {
		r := rand.New(rand.NewPCG(3, 4))
		s := &signal{Signal: memorySignal(900), growth: 1}
		for at := time.Duration(0); at < 5*time.Minute; at += s.Period {
			s.note(at, Reading{Value: 1.02 + c.slope*at.Seconds() + 0.001*r.Float64()}, nil)
			if v := s.judge(at, g, &p); at > time.Minute && v != c.want {
				t.Errorf("slope %v, after %v: %s", c.slope, at, v)
			}
		}
	}
}

// What is in use of a lever that stays isn't fallen below by more than two steps, and
// what is foreseen is met by no more than it needs.
func TestDepthOfAFall(t *testing.T) {
	for _, c := range []struct {
		stays bool
		use   float64
		want  float64
	}{{true, 0.5, 0.405}, {false, 0.5, 0.25}, {true, 1, 0.81}, {false, 1, 0.5}, {true, 0, 0.1}} {
		signals := []Signal{memorySignal(900)}
		l := newLaw(Defaults(signals), signals, []Lever{{Name: Publish, Stays: c.stays, Use: func() (float64, bool) { return c.use, true }}})
		for at := time.Duration(0); at < 10*time.Minute && l.levers[0].ratio == 1; at += time.Second {
			value := 0.95
			if at < 3*time.Minute { // it has been here for a while
				value = 0.1
			}
			if at%signals[0].Period == 0 {
				l.signals[0].note(at, Reading{Value: value}, nil)
			}
			l.step(at)
		}
		if got := l.levers[0].ratio; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
	signals := []Signal{memorySignal(900)}
	l := newLaw(Defaults(signals), signals, []Lever{{Name: Publish}})
	var moves []move
	for at := time.Duration(0); at < 5*time.Minute && len(moves) == 0; at += time.Second {
		if at%signals[0].Period == 0 { // twice of what fits, in a window
			l.signals[0].note(at, Reading{Value: 0.1 + 1.6*at.Seconds()/900}, nil)
		}
		moves = l.step(at)
	}
	if len(moves) != 1 || moves[0].after < 0.5 || !strings.Contains(moves[0].why, "within 15m0s, over the threshold of 80 %") {
		t.Errorf("%+v", moves)
	}
}

// After a fast fall a lever comes back sooner while what moves it is far from its
// threshold; near it, or after slow falls, it takes the ordinary steps.
func TestRoomToRise(t *testing.T) {
	signals := []Signal{memorySignal(900)}
	for _, c := range []struct {
		fast  bool
		value float64
		want  float64
	}{{true, 0.08, 0.375}, {true, 0.36, 0.333}, {true, 0.5, 0.33}, {false, 0.08, 0.33}} {
		l := newLaw(Defaults(signals), signals, []Lever{{Name: Publish}})
		v := l.levers[0]
		v.ratio, v.fast, v.by, v.why = 0.3, c.fast, "redis_memory", "it was full"
		for at := time.Duration(0); at < 10*time.Minute && v.ratio == 0.3; at += time.Second {
			if at%signals[0].Period == 0 {
				l.signals[0].note(at, Reading{Value: c.value}, nil)
			}
			l.step(at)
		}
		if math.Abs(v.ratio-c.want) > 0.001 {
			t.Errorf("%+v: %v", c, v.ratio)
		}
	}
}

// A gateway that has just begun is behind while its devices come back: what is in use
// then isn't what its crowd needs, and they aren't kept out for it.
func TestWhoComesBackAfterAStart(t *testing.T) {
	signals := []Signal{lagSignal(Admission)}
	use := 0.0
	l := newLaw(Defaults(signals), signals, []Lever{{Name: Admission, Stays: true, Use: func() (float64, bool) { return use, true }}})
	for at := time.Duration(0); at < 2*time.Minute; at += time.Second {
		use = min(0.6, 0.6*at.Seconds()/60)
		lag := 100.0
		if at > 5*time.Second && at < 30*time.Second {
			lag = 5000
		}
		l.signals[0].note(at, Reading{Value: lag}, nil)
		l.step(at)
		if got := l.levers[0].ratio; got < 0.7 {
			t.Fatalf("after %v it is at %v, with %v in use", at, got, use)
		}
	}
	if l.levers[0].ratio == 1 {
		t.Error("it didn't fall at all: nothing was shown")
	}
}
