package governor

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"pgregory.net/rapid"
)

// A world is some gateways under one law each, without a word between them, and
// a model of what they do together.
type world struct {
	t        float64 // seconds of the world's own clock
	gateways []*site
	model    model
	dt       float64
	ratios   []float64 // of all together, by their shares, at each step
}

// A model is what the levers move, and what the signals show.
type model interface {
	pass(w *world, dt float64)
	// read is what a gateway's probe would say now.
	read(g *site, signal string) (Reading, error)
}

// A site is one gateway: its clock, its signals' rhythm, and when they fail.
type site struct {
	law    *law
	offset time.Duration
	speed  float64            // of its clock
	next   map[string]float64 // when a signal is read again
	blind  [][2]float64       // when none is
	share  float64            // of the demand
	use    float64            // of what ratio 1 allows; < 0: not known
	moves  []move
	ratios []float64 // at each step
}

func (g *site) now(t float64) time.Duration {
	return g.offset + time.Duration(t*g.speed*float64(time.Second))
}

func (g *site) ratio() float64 { return g.law.levers[0].ratio }

type named string

func (n named) Name() string                        { return string(n) }
func (named) Read(context.Context) (Reading, error) { return Reading{}, errors.New("never asked") }

var errAway = errors.New("away")

// newWorld draws 1 to 5 gateways with clocks of their own.
func newWorld(t *rapid.T, m model, lever string, signals ...Signal) *world {
	w := &world{model: m, dt: 1}
	n := rapid.IntRange(1, 5).Draw(t, "gateways")
	total := 0.0
	for range n {
		g := &site{
			offset: time.Duration(rapid.IntRange(0, 1<<40).Draw(t, "offset")),
			speed:  rapid.Float64Range(0.95, 1.05).Draw(t, "speed"),
			share:  rapid.Float64Range(0.2, 1).Draw(t, "share"),
			next:   make(map[string]float64), use: -1,
		}
		total += g.share
		v := Lever{Name: lever, Use: func() (float64, bool) { return g.use, g.use >= 0 }, Set: func(Position) {}}
		g.law = newLaw(Defaults(signals), signals, []Lever{v})
		for _, s := range signals {
			g.next[s.Probe.Name()] = rapid.Float64Range(0, s.Period.Seconds()).Draw(t, "phase")
		}
		w.gateways = append(w.gateways, g)
	}
	for _, g := range w.gateways {
		g.share /= total
	}
	return w
}

// run lets time pass.
func (w *world) run(seconds float64) {
	for end := w.t + seconds; w.t < end; w.t += w.dt {
		w.model.pass(w, w.dt)
		all := 0.0
		for _, g := range w.gateways {
			g.pass(w)
			all += g.share * g.ratio()
		}
		w.ratios = append(w.ratios, all)
	}
}

func (g *site) pass(w *world) {
	now := g.now(w.t)
	for _, s := range g.law.signals {
		if w.t < g.next[s.name] {
			continue
		}
		g.next[s.name] = w.t + s.Period.Seconds()/g.speed
		r, err := w.model.read(g, s.name)
		for _, b := range g.blind {
			if w.t >= b[0] && w.t < b[1] {
				err = errAway
			}
		}
		s.note(now, r, err)
	}
	g.moves = append(g.moves, g.law.step(now)...)
	g.ratios = append(g.ratios, g.ratio())
}

// spread is the lowest and highest ratio in the last part of a run.
func spread(ratios []float64, part float64) (low, high float64) {
	low = 1
	for _, r := range ratios[int(float64(len(ratios))*(1-part)):] {
		low, high = min(low, r), max(high, r)
	}
	return low, high
}

// swing is the deepest way down in the last part of a run: from where, and to where. A
// slow rise to the end is none.
func swing(ratios []float64, part float64) (high, low float64) {
	top := 0.0
	high, low = 1, 1
	for _, r := range ratios[int(float64(len(ratios))*(1-part)):] {
		if top = max(top, r); r/top < low/high {
			high, low = top, r
		}
	}
	return high, low
}

// fallen is how many falls a gateway has made.
func (g *site) fallen() (n int) {
	for _, m := range g.moves {
		if m.kind == Fall || m.kind == FastFall {
			n++
		}
	}
	return n
}

// noise is drawn once for a scenario; it is of the size given.
type noise struct {
	r    *rand.Rand
	size float64
}

func (n noise) on(v float64) float64 { return max(v*(1+n.size*(2*n.r.Float64()-1)), 0) }

func drawNoise(t *rapid.T, most float64) noise {
	return noise{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), rapid.Float64Range(0, most).Draw(t, "noise")}
}

// memory is Redis: what is published stays for the window, and is swept every
// few seconds.
type memory struct {
	window, sweep float64
	base          float64 // of what others keep there, as a part of the maximum
	demand        float64 // which would fill so much of it in a window
	ramp          float64 // seconds after which all of that is demanded
	room          float64 // what ratio 1 allows, as a multiple of a gateway's own demand
	noise         noise

	history []float64 // published in each second
	held    float64
	swept   int
	peak    float64
}

func (m *memory) pass(w *world, dt float64) {
	in := 0.0
	for _, g := range w.gateways {
		want := m.demand * g.share
		if w.t < m.ramp {
			want *= w.t / m.ramp
		}
		full := max(m.room*want, 1e-9)
		got := min(want, full*g.ratio())
		g.use = got / full
		in += got
	}
	in *= dt / m.window
	if m.base+m.held+in > 1 {
		in = max(1-m.base-m.held, 0) // it refuses
	}
	m.history = append(m.history, in)
	m.held += in
	if math.Mod(w.t, m.sweep) < dt {
		for ; m.swept < len(m.history)-int(m.window/dt); m.swept++ {
			m.held -= m.history[m.swept]
		}
	}
	m.peak = max(m.peak, m.level())
}

func (m *memory) level() float64 { return m.base + m.held }

func (m *memory) read(*site, string) (Reading, error) {
	return Reading{Value: m.noise.on(m.level())}, nil
}

// fill makes it as full as it would be after a window at some demand.
func (m *memory) fill(demand float64, dt float64) {
	for range int(m.window / dt) {
		m.history = append(m.history, demand*dt/m.window)
		m.held += demand * dt / m.window
	}
}

// queue is a consumer that works off what the levers let in; what it doesn't
// manage is the lag.
type queue struct {
	demand   float64 // entries a second
	capacity float64 // entries a second
	lag      float64
	stopped  bool // it can't be reached, and neither can it be asked
	noise    noise
}

func (q *queue) pass(w *world, dt float64) {
	for _, g := range w.gateways {
		g.use = min(1, g.ratio())
		q.lag += q.demand * g.share * g.use * dt
	}
	if !q.stopped {
		q.lag = max(q.lag-q.capacity*dt, 0)
	}
}

func (q *queue) read(*site, string) (Reading, error) {
	if q.stopped {
		return Reading{}, errAway
	}
	return Reading{Value: q.noise.on(q.lag)}, nil
}

// fleet is devices that come back: each that is let in costs work, which is what
// the events need too. Every gateway has a machine of its own.
type fleet struct {
	devices  float64 // that want to be in
	room     float64 // what ratio 1 allows all gateways, as a multiple of the devices
	leave    float64 // part of those inside that leave and come back, a second
	cost     float64 // events that one admission is as dear as
	events   float64 // a second, to each gateway
	capacity float64 // events a second, of each gateway
	retry    float64 // seconds

	inside, lag map[*site]float64
}

func (f *fleet) pass(w *world, dt float64) {
	if f.inside == nil {
		f.inside, f.lag = make(map[*site]float64), make(map[*site]float64)
	}
	for _, g := range w.gateways {
		want, full := f.devices*g.share, f.devices*g.share*f.room
		f.inside[g] -= f.inside[g] * f.leave * dt
		ask := (want - f.inside[g]) / f.retry * dt
		in := max(min(ask, full*g.ratio()-f.inside[g]), 0)
		if g.ratio() < 1 { // they are paced then
			in = min(in, full*g.ratio()/60*dt)
		}
		f.inside[g] += in
		g.use = f.inside[g] / full
		f.lag[g] = max(f.lag[g]+f.events*dt+in*f.cost-f.capacity*dt, 0)
	}
}

func (f *fleet) read(g *site, _ string) (Reading, error) { return Reading{Value: f.lag[g]}, nil }
