package governor

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Settings are checked, all of them, and count at once.
func TestSettingsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.memory.say(Reading{Value: 0.85}, nil, 0)
		pass(2 * time.Minute)
		before := r.Settings()
		_, err := r.Apply(func(s *Settings) error {
			s.Step, s.RiseStep, s.Period, s.Floor = 2, 0.5, 0, 0
			s.Signals["redis_memory"] = SignalSettings{Threshold: 0.9, Wall: 0.8, Levers: []string{"gravity"}}
			s.Signals["phase_of_moon"] = SignalSettings{}
			return nil
		})
		faults, ok := errors.AsType[Faults](err)
		if !ok || len(faults) != 7 {
			t.Errorf("%d: %v", len(faults), err)
		}
		if diff := cmp.Diff(before, r.Settings()); diff != "" {
			t.Errorf("a part of it counts: %s", diff)
		}
		now, err := r.Apply(func(s *Settings) error { s.Floor = 0.95; return nil })
		if err != nil || now.Floor != 0.95 || r.lever().Ratio != 0.95 {
			t.Errorf("%v, %+v", err, r.lever())
		}
		_, err = r.Apply(func(s *Settings) error { s.On = false; return nil })
		if got := r.lever(); err != nil || got.Ratio != 1 || got.Signal != "" {
			t.Errorf("%v, %+v", err, got)
		}
		if on := testutil.ToFloat64(r.opts.Metrics.on.WithLabelValues()); on != 0 {
			t.Errorf("switched off, and downlink_governor_on is %v", on)
		}
		pass(time.Hour)
		if got := r.lever(); got.Ratio != 1 || r.signal("redis_memory").Verdict != Over {
			t.Errorf("switched off: %+v", got)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if last := r.last[len(r.last)-1]; last != (Position{Ratio: 1}) {
			t.Errorf("what the lever was set to last: %+v", last)
		}
	})
}

func TestSettingsAreWrittenAndRead(t *testing.T) {
	signals := []Signal{{Probe: named("x"), Threshold: 1, Levers: []string{Publish}}}
	s := Defaults(signals)
	text, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(text), `"period":"30s"`) {
		t.Fatal(string(text), err)
	}
	var back Settings
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, back); diff != "" {
		t.Error(diff)
	}
	if err := json.Unmarshal([]byte(`{"period": "soon"}`), &back); err == nil || !strings.Contains(err.Error(), "30s") {
		t.Error(err)
	}
	if err := s.check([]string{Publish}); err != nil {
		t.Error(err)
	}
}

// What Apply has changed stands until the file says something else of that very
// setting; a file that can't be used changes nothing.
func TestFileAndApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		change := func(text string) func(*Settings) error {
			c, err := Patch([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		load := func(text string) {
			t.Helper()
			if err := r.Load(change(text)); err != nil {
				t.Fatal(err)
			}
		}
		is := func(step, threshold, wall float64) {
			t.Helper()
			s := r.Settings()
			if m := s.Signals["redis_memory"]; s.Step != step || m.Threshold != threshold || m.Wall != wall {
				t.Errorf("%v, %+v", s.Step, m)
			}
		}
		load(`{"step": 0.2, "signals": {"redis_memory": {"wall": 0.85}}}`)
		is(0.2, 0.8, 0.85)
		if _, err := r.Apply(change(`{"step": 0.3, "signals": {"redis_memory": {"threshold": 0.7}}}`)); err != nil {
			t.Fatal(err)
		}
		is(0.3, 0.7, 0.85)
		load(`{"step": 0.2, "signals": {"redis_memory": {"wall": 0.9}}}`) // of the wall alone
		is(0.3, 0.7, 0.9)
		if c := r.Configured(); c.Step != 0.2 || c.Signals["redis_memory"].Threshold != 0.8 {
			t.Errorf("%+v", c)
		}
		load(`{"step": 0.25, "signals": {"redis_memory": {"wall": 0.9}}}`)
		is(0.25, 0.7, 0.9)
		err := r.Load(change(`{"step": 0.1, "signals": {"redis_memory": {"wall": 0.1}, "moon": {"wall": 1}}}`))
		if faults, ok := errors.AsType[Faults](err); !ok || len(faults) != 2 {
			t.Error(err)
		}
		// Possible by itself, and not with what stands.
		if _, err := r.Apply(change(`{"signals": {"redis_memory": {"threshold": 0.88}}}`)); err != nil {
			t.Fatal(err)
		}
		err = r.Load(change(`{"step": 0.1, "signals": {"redis_memory": {"wall": 0.85}}}`))
		if err == nil || !strings.Contains(err.Error(), "at run time: signals.redis_memory.wall can't be 0.85") {
			t.Error(err)
		}
		is(0.25, 0.88, 0.9)
		load(`{}`)
		is(0.10, 0.88, 0.92)
		if !strings.Contains(r.log.String(), "setting=signals.redis_memory.wall now=0.92") {
			t.Error(r.log.String())
		}
	})
}
