package governor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Settings are those that count now.
func (g *Governor) Settings() Settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.law.settings.clone()
}

// Configured are the settings without what Apply has changed.
func (g *Governor) Configured() Settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.base.clone()
}

// Apply changes settings: change is given those that count, and all of what it
// makes of them counts at once, or nothing. It returns what counts afterwards. An
// error is Faults, or change's own.
func (g *Governor) Apply(change func(*Settings) error) (Settings, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.law.settings.clone()
	if err := change(&s); err != nil {
		return g.law.settings.clone(), err
	}
	s = s.complete(g.opts.Signals)
	if err := Check(s, g.opts.Signals, g.levers); err != nil {
		return g.law.settings.clone(), err
	}
	g.take(s)
	return s.clone(), nil
}

// Load takes over what a file says: change is given the settings that the governor
// was made with. What was changed by Apply stands until the file says something
// else of that very setting. An error leaves all as it was, and is Faults, or
// change's own.
func (g *Governor) Load(change func(*Settings) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	base := g.opts.Settings.clone()
	if err := change(&base); err != nil {
		return err
	}
	base = base.complete(g.opts.Signals)
	if err := Check(base, g.opts.Signals, g.levers); err != nil {
		return err
	}
	s := g.law.settings.clone()
	if faults := assign(&s, differences(g.base, base)); len(faults) > 0 {
		return faults
	}
	if err := Check(s, g.opts.Signals, g.levers); err != nil {
		return fmt.Errorf("together with what was changed at run time: %w", err)
	}
	g.base = base
	g.take(s)
	return nil
}

// take has settings count from now on. With the lock.
func (g *Governor) take(s Settings) {
	for _, e := range differences(g.law.settings, s) {
		g.opts.Logger.Info("a setting of the governor was changed", "setting", e.path(), "now", string(e.value))
	}
	g.law.settings = s
	for _, m := range g.law.step(time.Since(g.began)) {
		g.apply(m)
	}
	g.show()
}

// differences are what b has otherwise than a, both checked and of the same signals.
func differences(a, b Settings) []entry {
	before := a.entries()
	return slices.DeleteFunc(b.entries(), func(e entry) bool {
		return slices.ContainsFunc(before, func(o entry) bool { return o.path() == e.path() && bytes.Equal(o.value, e.value) })
	})
}

// entries are all settings, one by one.
func (s Settings) entries() []entry {
	text, _ := json.Marshal(s) // numbers that were checked are finite
	all, _ := flatten(text)
	return all
}

// complete gives signals that settings don't name what they have by themselves.
func (s Settings) complete(signals []Signal) Settings {
	s = s.clone()
	if s.Signals == nil {
		s.Signals = make(map[string]SignalSettings)
	}
	for _, d := range signals {
		if _, has := s.Signals[d.Probe.Name()]; !has {
			s.Signals[d.Probe.Name()] = SignalSettings{d.Threshold, d.Wall, slices.Clone(d.Levers)}
		}
	}
	return s
}

// Check says what is wrong with settings for these signals and levers: Faults, or
// nil.
func Check(s Settings, signals []Signal, levers []string) error {
	var faults Faults
	if err := s.complete(signals).check(levers); err != nil && !errors.As(err, &faults) {
		return err
	}
	for _, d := range signals {
		if d.Unit == ratioUnit {
			faults = append(faults, s.Signals[d.Probe.Name()].percent(signalsName+"."+d.Probe.Name())...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Signals)) {
		if !slices.ContainsFunc(signals, func(d Signal) bool { return d.Probe.Name() == name }) {
			faults = append(faults, Fault{"signals." + name, "is no signal of this governor; GET its state for those that are"})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}
