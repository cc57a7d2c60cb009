package governor

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func memorySignal(window float64) Signal {
	w := time.Duration(window * float64(time.Second))
	return Signal{
		Probe: named("redis_memory"), Unit: "ratio", Period: min(max(w/100, time.Second), 5*time.Second), Fresh: 20 * time.Second, Ripple: 5 * time.Second,
		Settles: func() time.Duration { return w }, Threshold: 0.8, Wall: 0.92, Levers: []string{Publish},
	}
}

func lagSignal(lever string) Signal {
	return Signal{
		Probe: named("tail_lag"), Unit: "entries", Period: time.Second, Fresh: 5 * time.Second,
		Settles: func() time.Duration { return 10 * time.Second }, Threshold: 1000, Wall: 50000, Levers: []string{lever},
	}
}

func drawMemory(t *rapid.T) *memory {
	return &memory{
		window: rapid.Float64Range(60, 900).Draw(t, "window"), sweep: 5,
		base: rapid.Float64Range(0, 0.4).Draw(t, "base"), demand: rapid.Float64Range(0.05, 4).Draw(t, "demand"),
		room: rapid.Float64Range(1, 3).Draw(t, "room"), noise: drawNoise(t, 0.005),
	}
}

// drawBlind draws times at which a gateway's signals can't be read.
func drawBlind(t *rapid.T, w *world, seconds float64) {
	for _, g := range w.gateways {
		for range rapid.IntRange(0, 3).Draw(t, "failures") {
			from := rapid.Float64Range(0, seconds).Draw(t, "from")
			g.blind = append(g.blind, [2]float64{from, from + rapid.Float64Range(1, 300).Draw(t, "for")})
		}
	}
}

// Redis fills: whatever is demanded, the rate settles where the memory is under
// its threshold, doesn't swing by more than a step, and doesn't stay lower than
// it must; and when the demand has gone, nothing is held back any more.
func TestMemorySettlesAndRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMemory(t)
		w := newWorld(t, m, Publish, memorySignal(m.window))
		m.fill(rapid.Float64Range(0, 0.9-m.base).Draw(t, "before"), w.dt)
		for _, g := range w.gateways {
			g.law.levers[0].ratio = rapid.Float64Range(0.1, 1).Draw(t, "ratio")
		}
		drawBlind(t, w, 1500)
		w.run(2*3600 + 6*m.window)
		const T = 0.8
		if level := m.level(); level > T*(1.02+m.sweep/m.window) && m.base+0.1*m.demand*m.room < T {
			t.Errorf("the memory is at %.3f", level)
		}
		throttled := false
		for i, g := range w.gateways {
			if high, low := swing(g.ratios, 0.2); low < high*(1-0.1)*0.999 {
				t.Errorf("gateway %d swings between %.3f and %.3f", i, high, low)
			}
			low, _ := spread(g.ratios, 0.2)
			throttled = throttled || low < 1
		}
		if throttled && m.level() < T*0.9*0.85 {
			t.Errorf("something is held back although the memory is at %.3f", m.level())
		}
		m.demand = 0.01
		w.run(3600 + m.window*2)
		for i, g := range w.gateways {
			if m.base < 0.7 && g.ratio() < 1 {
				t.Errorf("gateway %d is still at %.3f, with the memory at %.3f", i, g.ratio(), m.level())
			}
		}
	})
}

// Redis fills from nothing, with up to twice of what it can hold: it stops within three
// points of its threshold, because what is let in stays for a window, and that is
// foreseen.
func TestMemoryStopsAtItsThreshold(t *testing.T) {
	for _, window := range []float64{300, 900} {
		for _, demand := range []float64{0.85, 1, 1.5, 2} {
			for _, n := range []int{1, 3} {
				m := &memory{window: window, sweep: 1, demand: demand, base: 0.1, room: 1, noise: noise{rand.New(rand.NewPCG(1, 2)), 0.003}}
				w, s := &world{model: m, dt: 1}, memorySignal(window)
				for i := range n {
					g := &site{speed: 1 + 0.02*float64(i-1), share: 1 / float64(n), next: map[string]float64{"redis_memory": 1.5 * float64(i)}, use: -1}
					g.law = newLaw(Defaults([]Signal{s}), []Signal{s}, []Lever{{Name: Publish, Use: func() (float64, bool) { return g.use, g.use >= 0 }}})
					w.gateways = append(w.gateways, g)
				}
				w.run(3 * window)
				if m.peak > 0.825 {
					t.Errorf("%d gateways, a window of %v s, %v of what it can hold: the memory was at %.3f", n, window, demand, m.peak)
				}
			}
		}
	}
}

// Whatever is demanded then, and however it grows, the wall isn't reached; and what
// fits is held back by nobody.
func TestMemoryStopsBeforeItsWall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMemory(t)
		m.ramp = rapid.Float64Range(0, 100).Draw(t, "ramp")
		m.window, m.base, m.demand, m.room = rapid.Float64Range(120, 900).Draw(t, "wide"), m.base/2, m.demand/2, 1
		w := newWorld(t, m, Publish, memorySignal(m.window))
		w.run(3 * m.window)
		if m.peak >= 0.92 {
			t.Errorf("the memory was at its wall: %.3f", m.peak)
		}
		for i, g := range w.gateways {
			if n := g.fallen(); n > 0 && m.base+m.demand*(1+m.sweep/m.window) < 0.8*0.97 {
				t.Errorf("gateway %d has fallen %d times, and all fits: %s", i, n, g.moves[0].why)
			}
		}
	})
}

// A crowd comes within two minutes, to a Redis that holds a third of what all of them
// publish in a window of one: at no time it is fuller than the wall says, and half of it
// is of use afterwards.
func TestMemoryOfACrowd(t *testing.T) {
	for _, sweep := range []float64{1, 5} {
		m := &memory{window: 60, sweep: sweep, demand: 3, base: 0.1, ramp: 120, room: 1, noise: noise{rand.New(rand.NewPCG(0, 1)), 0.003}}
		s := memorySignal(m.window)
		s.Threshold, s.Wall = 0.75, 0.82
		g := &site{speed: 1, share: 1, next: map[string]float64{"redis_memory": 0.5}, use: -1}
		g.law = newLaw(Defaults([]Signal{s}), []Signal{s}, []Lever{{Name: Publish, Use: func() (float64, bool) { return g.use, g.use >= 0 }}})
		w := &world{model: m, dt: 1, gateways: []*site{g}}
		w.run(180)
		if m.peak > s.Wall || m.level() < 0.5 {
			t.Errorf("swept every %v s, it was at %.3f, and is at %.3f", sweep, m.peak, m.level())
			for _, m := range g.moves {
				t.Logf("%s %.3f -> %.3f %s", m.kind, m.before, m.after, m.why)
			}
		}
	}
}

// A consumer has less capacity than the levers let in: the lag comes back under
// its threshold, and from then on the ratio swings by one step, ever more
// seldom.
func TestLagSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &queue{capacity: 1000, demand: 1000 * rapid.Float64Range(0.3, 6).Draw(t, "demand"), noise: drawNoise(t, 0.02)}
		w := newWorld(t, q, Publish, lagSignal(Publish))
		drawBlind(t, w, 600) // a gateway that doesn't see it leaves the work to the others
		w.run(4 * 3600)
		all, fair := 0.0, min(1, q.capacity/q.demand)
		if low, high := spread(w.ratios, 0.25); low < fair*(1-0.1)*0.98 || high > fair*(1+0.1)*1.02 {
			t.Errorf("all swing between %.3f and %.3f around %.3f", low, high, fair)
		}
		for _, g := range w.gateways {
			_, high := spread(g.ratios, 0.25)
			all += high * g.share
		}
		if all < 0.8*fair {
			t.Errorf("only %.3f are let in, of %.3f", all, fair)
		}
		q.demand = 500
		w.run(3600)
		for i, g := range w.gateways {
			if g.ratio() < 1 {
				t.Errorf("gateway %d is still at %.3f", i, g.ratio())
			}
		}
	})
}

// What an outage has left behind is worked off, and holds nobody back.
func TestCatchingUpIsNoOverload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &queue{capacity: 1000, demand: 1000 * rapid.Float64Range(0.1, 0.85).Draw(t, "demand"), noise: drawNoise(t, 0.0005)}
		w := newWorld(t, q, Admission, lagSignal(Admission))
		w.run(60)
		q.stopped = true
		w.run(rapid.Float64Range(5, 600).Draw(t, "outage"))
		q.stopped = false
		w.run(120)
		if excess := q.lag - 1000; excess > 0 && excess/(q.capacity-q.demand) > 1200 {
			return // it wouldn't be worked off soon
		}
		w.run(3600)
		for i, g := range w.gateways {
			if n := g.fallen(); n > 0 {
				t.Errorf("gateway %d has fallen %d times, at last because %s", i, n, g.moves[len(g.moves)-1].why)
			}
		}
	})
}

// All devices come back at once, to gateways for whom letting one in costs as
// much as many events: all are in again, and nothing is held back for ever.
func TestFleetComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{
			devices: rapid.Float64Range(1000, 50000).Draw(t, "devices"), room: rapid.Float64Range(1, 3).Draw(t, "room"),
			leave: rapid.Float64Range(0, 0.0005).Draw(t, "leave"), cost: rapid.Float64Range(0.1, 3).Draw(t, "cost"),
			capacity: 1000, events: rapid.Float64Range(0, 800).Draw(t, "events"), retry: rapid.Float64Range(1, 30).Draw(t, "retry"),
		}
		w := newWorld(t, f, Admission, lagSignal(Admission))
		for _, g := range w.gateways {
			g.law.levers[0].ratio = rapid.Float64Range(0.1, 1).Draw(t, "ratio")
		}
		drawBlind(t, w, 600)
		w.run(2.5 * 3600)
		for i, g := range w.gateways {
			want := f.devices * g.share
			if work := want * f.leave * f.cost; work+f.events > 0.8*f.capacity {
				continue // never done
			}
			_, high := spread(g.ratios, 0.2)
			if _, before := spread(g.ratios[:len(g.ratios)*8/10], 0.2); high > before {
				continue // those of each rise come faster than it bears; it gets there slowly
			}
			if g.ratio() < 1 {
				for _, m := range g.moves {
					t.Logf("%s %.3f -> %.3f %s", m.kind, m.before, m.after, m.why)
				}
			}
			if g.ratio() < 1 || f.inside[g] < 0.98*want {
				t.Errorf("gateway %d is at %.3f, with %.0f of %.0f inside", i, g.ratio(), f.inside[g], want)
			}
		}
	})
}

// Whatever was read, and in whatever state that has left a lever: it stands
// between its floor and 1, it falls by what was read and over its threshold
// alone, it rises while nothing is unknown or over, and when all is good it is
// open again.
func TestRecoversFromEveryState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		signals := []Signal{memorySignal(rapid.Float64Range(10, 900).Draw(t, "window")), lagSignal(Publish)}
		use, known := 1.0, true
		l := newLaw(Defaults(signals), signals, []Lever{{Name: Publish, Use: func() (float64, bool) { return use, known }}})
		v := l.levers[0]
		now := time.Duration(0)
		second := func(read func(s *signal) (Reading, error)) {
			now += time.Second
			for _, s := range l.signals {
				r, err := read(s)
				s.note(now, r, err)
			}
			before := v.ratio
			for _, m := range l.step(now) {
				switch {
				case m.after > before && (v.verdict != Good && v.verdict != None):
					t.Fatalf("it rises although a signal is %s", v.verdict)
				case m.after < before && v.verdict != Over && v.verdict != AtWall:
					t.Fatalf("it falls although no signal is worse than %s", v.verdict)
				}
			}
			if v.ratio < l.settings.Floor || v.ratio > 1 {
				t.Fatalf("it is at %v", v.ratio)
			}
			if v.ratio < 1 && (v.by == "" || v.why == "") || v.ratio == 1 && v.by != "" {
				t.Fatalf("it is at %v by %q because %q", v.ratio, v.by, v.why)
			}
		}
		for range rapid.IntRange(0, 20).Draw(t, "phases") {
			use, known = rapid.Float64Range(0, 1.2).Draw(t, "use"), rapid.Bool().Draw(t, "known")
			value := rapid.SampledFrom([]float64{0, 0.5, 0.79, 0.81, 0.95, 1, 900, 1e6, math.NaN(), math.Inf(1), -1}).Draw(t, "value")
			slope := rapid.Float64Range(-0.02, 0.02).Draw(t, "slope")
			err := rapid.SampledFrom([]error{nil, nil, nil, errAway}).Draw(t, "error")
			none := rapid.SampledFrom([]string{"", "", "", "no maximum"}).Draw(t, "none")
			for i := range rapid.IntRange(1, 200).Draw(t, "seconds") {
				second(func(*signal) (Reading, error) {
					return Reading{Value: value * (1 + slope*float64(i)), None: none}, err
				})
			}
		}
		for range 3600 {
			second(func(*signal) (Reading, error) { return Reading{Value: 0.01}, nil })
		}
		if v.ratio != 1 {
			t.Fatalf("it is still at %v, with its signals %s", v.ratio, v.verdict)
		}
	})
}

// After a cut what was published before leaves the memory for a whole window: who
// took that for room would rise too far, and have to fall again, for ever.
func TestMemoryDoesNotSwing(t *testing.T) {
	for _, period := range []time.Duration{2 * time.Second, 5 * time.Second} {
		m := &memory{window: 900, sweep: 5, demand: 1, base: 0.125, room: 1, noise: noise{rand.New(rand.NewPCG(0, 1)), 0.005}}
		m.fill(0.775, 1)
		s := memorySignal(m.window)
		s.Period, s.Wall = period, 0.9
		w := &world{model: m, dt: 1}
		g := &site{speed: 1.05, share: 1, next: map[string]float64{"redis_memory": 1.5}, use: -1}
		g.law = newLaw(Defaults([]Signal{s}), []Signal{s}, []Lever{{Name: Publish, Use: func() (float64, bool) { return g.use, g.use >= 0 }}})
		w.gateways = []*site{g}
		w.run(4 * 3600)
		rose := slices.IndexFunc(g.moves, func(m move) bool { return m.kind == Rise })
		g.moves = g.moves[max(rose, 0):]
		if n := g.fallen(); rose < 0 || n > 1 {
			t.Errorf("read every %v, it falls %d times after it has risen", period, n)
			for _, m := range g.moves {
				t.Logf("%s %.3f -> %.3f %s", m.kind, m.before, m.after, m.why)
			}
		}
	}
}

// Readings that come a little early or late are read all the same.
func TestUnevenReadings(t *testing.T) {
	p := Defaults(nil)
	s := &signal{Signal: lagSignal(Admission), growth: 1}
	s.Period = 2 * time.Second
	r := rand.New(rand.NewPCG(1, 2))
	for at := time.Duration(0); at < time.Hour; at += s.Period {
		late := time.Duration(r.Int64N(int64(400 * time.Millisecond)))
		s.note(at+late, Reading{Value: 1}, nil)
		if v := s.judge(at+late, SignalSettings{Threshold: 1000}, &p); v != Good && at > 20*time.Second {
			t.Fatalf("after %v it is %s", at, v)
		}
	}
}

// A trend begins anew at a move and over a gap, and what a move will still show
// is reckoned with.
func TestTrend(t *testing.T) {
	p := Defaults(nil)
	g := SignalSettings{Threshold: 0.8, Wall: 0.92}
	feed := func(s *signal, from, to time.Duration, value func(at float64) float64) {
		for at := from; at < to; at += s.Period {
			s.note(at, Reading{Value: value(at.Seconds())}, nil)
		}
	}
	rising := func(at float64) float64 { return 0.3 + at/10000 }

	s := &signal{Signal: memorySignal(900), growth: 1}
	feed(s, 0, time.Minute, rising)
	if slope, _, ok := s.trend(); !ok || slope < 0.00009 || slope > 0.00011 {
		t.Errorf("%v %v", slope, ok)
	}
	if v := s.judge(time.Minute, g, &p); v != Good {
		t.Errorf("rising by itself, far below: %s", v)
	}
	s.moved, s.touched, s.drawn = time.Minute, true, false
	if _, _, ok := s.trend(); ok {
		t.Error("a move is over, and the trend of before stands")
	}
	feed(s, time.Minute, 2*time.Minute, func(at float64) float64 { return 0.3 + at/1000 })
	if v := s.judge(2*time.Minute, g, &p); v != Over {
		t.Errorf("it will be at 1.3 when the window has passed, and is %s", v)
	}
	feed(s, 10*time.Minute, 10*time.Minute+2*s.Period, rising)
	if slope, _, ok := s.trend(); ok {
		t.Errorf("a gap of 8 minutes, and the trend is %v", slope)
	}
}
