package governor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Options for a Governor.
type Options struct {
	Signals  []Signal
	Levers   []Lever
	Settings Settings // Defaults(Signals), changed at will
	Metrics  *Metrics
	Logger   *slog.Logger
}

// tick is how often levers are looked at.
const tick = time.Second

// A Governor runs the law. Safe for concurrent use.
type Governor struct {
	// Set at construction.
	opts   Options
	levers []string
	began  time.Time // its monotonic part is the law's clock

	mu      sync.Mutex // guards what follows
	law     *law
	base    Settings             // without what Apply has made of them
	since   map[string]time.Time // when a lever moved last
	missed  map[string]bool      // signals of which the log says that they can't be read
	stuck   map[string]bool      // at its floor, and its signal over
	history history
}

// New makes a governor, which moves nothing before Run. An error is Faults: what
// is wrong with the settings.
func New(o Options) (*Governor, error) {
	g := &Governor{opts: o, began: time.Now(), since: make(map[string]time.Time), stuck: make(map[string]bool), missed: make(map[string]bool)}
	for _, v := range o.Levers {
		g.levers = append(g.levers, v.Name)
		g.since[v.Name] = g.began
	}
	var names []string
	for _, s := range o.Signals {
		names = append(names, s.Probe.Name())
		if s.Period <= 0 || s.Timeout <= 0 || s.Fresh < 2*s.Period {
			return nil, fmt.Errorf("governor: signal %s needs a period, a time limit, and a freshness of at least two periods", s.Probe.Name())
		}
	}
	settings := o.Settings.complete(o.Signals)
	if err := Check(settings, o.Signals, g.levers); err != nil {
		return nil, err
	}
	g.law, g.base = newLaw(settings, o.Signals, o.Levers), settings
	g.history.init()
	o.Metrics.prepare(g.levers, names)
	g.show()
	return g, nil
}

// Run reads the signals and moves the levers until ctx ends; then it returns nil,
// and every lever stays where it is.
func (g *Governor) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	for i := range g.opts.Signals {
		probes.Go(func() { g.watch(ctx, i) })
	}
	every := time.NewTicker(tick)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			g.step()
		}
	}
}

// watch reads one signal, in its own rhythm: a slow one delays no other.
func (g *Governor) watch(ctx context.Context, i int) {
	s := g.opts.Signals[i]
	every := time.NewTicker(s.Period)
	defer every.Stop()
	for {
		began := time.Now()
		r, err := read(ctx, s)
		if ctx.Err() != nil {
			return
		}
		g.note(i, began, r, err)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

var errSlow = errors.New("it didn't answer in time")

// read asks a probe, for as long as it may take. A probe that doesn't heed the end
// of its context isn't waited for by the levers, but asked nothing more either.
func read(ctx context.Context, s Signal) (Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	r, err := s.Probe.Read(ctx)
	if ctx.Err() != nil {
		return Reading{}, errSlow // also if it has answered since: with what, nobody knows
	}
	return r, err
}

// note takes an answer. It counts from when it was asked for.
func (g *Governor) note(i int, asked time.Time, r Reading, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.law.signals[i]
	// At the very first some of what is measured hasn't begun, and who hasn't answered
	// once may just be taken over for.
	again := s.missing() != nil || s.read && err != nil
	s.note(asked.Sub(g.began), r, err)
	if s.err != nil {
		g.opts.Metrics.failures.WithLabelValues(s.name).Inc()
	}
	switch err := s.missing(); {
	case err != nil && !g.missed[s.name] && again:
		g.missed[s.name] = true
		g.opts.Logger.Warn("a signal of the governor can't be read; until it can be, no lever that it moves rises", "signal", s.name, "error", err)
	case err == nil && g.missed[s.name]:
		g.missed[s.name] = false
		g.opts.Logger.Warn("a signal of the governor can be read again", "signal", s.name)
	}
}

// missing says why nothing good can be known of the signal by what was asked last;
// nil if all have answered.
func (s *signal) missing() error {
	if s.err == nil && s.last.Partial != "" {
		return errors.New("not all have answered: " + s.last.Partial)
	}
	return s.err
}

// step moves the levers that are due.
func (g *Governor) step() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Since(g.began)
	for _, m := range g.law.step(now) {
		g.apply(m)
	}
	for _, v := range g.law.levers {
		g.warn(v, now)
	}
	g.show()
}

// warn says once when a lever can't do what it should, and when it can again. What its
// last fall does is waited for.
func (g *Governor) warn(v *lever, now time.Duration) {
	low, over := v.ratio <= g.law.floor(v), v.verdict == Over || v.verdict == AtWall
	switch {
	case !g.stuck[v.Name] && low && over && v.due(now, g.law.settings.Period):
		g.stuck[v.Name] = true
		g.opts.Logger.Warn("a lever of the governor is at its floor, and that isn't enough: nothing more is held back", "lever", v.Name, "floor", g.law.floor(v), "why", g.law.explain(v.worst))
	case g.stuck[v.Name] && (!low || v.calm && v.verdict != Fair):
		g.stuck[v.Name] = false
		g.opts.Logger.Warn("what a lever of the governor holds back at its floor is enough now", "lever", v.Name)
	}
}

// apply tells of a move, and carries it out.
func (g *Governor) apply(m move) {
	v := m.lever
	now := time.Now()
	g.since[v.Name] = now
	v.Set(Position{Ratio: v.ratio, Signal: v.by, Why: v.why})
	c := Change{At: now.Truncate(0), Lever: v.Name, Kind: m.kind, Before: m.before, After: m.after, Maximum: v.maximum(), Unit: v.unit(), Signal: m.signal, Why: m.why}
	g.history.add(c)
	g.opts.Metrics.moved(c)
	level := slog.LevelInfo
	if m.kind == Fall || m.kind == FastFall {
		level = slog.LevelWarn
	}
	attrs := []any{"lever", c.Lever, "change", c.Kind, "before", round(c.Before), "after", round(c.After), "why", c.Why}
	if c.Maximum != nil {
		attrs = append(attrs, "maximum", round(*c.Maximum), "unit", c.Unit)
	}
	g.opts.Logger.Log(context.Background(), level, "the governor has moved a lever", attrs...)
}
