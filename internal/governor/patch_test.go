package governor

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func patched(t *testing.T, s Settings, text string) Settings {
	t.Helper()
	change, err := Patch([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := change(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func twoSignals() []Signal {
	return []Signal{memorySignal(900), lagSignal(Admission)}
}

// What a patch names changes, and nothing else.
func TestPatch(t *testing.T) {
	before := Defaults(twoSignals())
	now := patched(t, before.clone(), ` {"step": 0.2, "period": "1m", "hesitance": 2, "on": false,
		"signals": {"redis_memory": {"wall": 0.82}, "tail_lag": {"levers": ["publish", "admission"]}}}`)
	want := before.clone()
	want.Step, want.Period, want.Hesitance, want.On = 0.2, Duration(time.Minute), 2, false
	want.Signals["redis_memory"] = SignalSettings{0.8, 0.82, []string{Publish}}
	want.Signals["tail_lag"] = SignalSettings{1000, 50000, []string{Publish, Admission}}
	if diff := cmp.Diff(want, now); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Defaults(twoSignals()), before); diff != "" {
		t.Errorf("what it was made of has changed: %s", diff)
	}
	if now := patched(t, before.clone(), `{"signals": {"redis_memory": {"levers": [null]}}}`); now.Signals["redis_memory"].Levers[0] != "" {
		t.Error(now.Signals)
	}
	if now := patched(t, before.clone(), `{"signals": {"redis_memory": {"levers": []}}}`); len(now.Signals["redis_memory"].Levers) != 0 {
		t.Error(now.Signals)
	}
}

// All that is wrong is said, each with its name.
func TestPatchFaults(t *testing.T) {
	for text, want := range map[string]string{
		``:                                        "settings",
		`[]`:                                      "settings",
		`null`:                                    "settings",
		`{} {}`:                                   "settings",
		`{"step": 0.1`:                            "settings",
		"{\"step\": 0.1, \"\xff\": 1}":            "\ufffd",
		`{"Step": 0.1}`:                           "Step",
		`{"step": 0.1, "step": 0.2}`:              "step",
		`{"step": "0.1"}`:                         "step",
		`{"step": null}`:                          "step",
		`{"step": 1e999}`:                         "step",
		`{"step": {}}`:                            "step",
		`{"on": "yes"}`:                           "on",
		`{"hesitance": 1.5}`:                      "hesitance",
		`{"period": 30}`:                          "period",
		`{"period": "soon"}`:                      "period",
		`{"threshold": 1, "floor": [], "x": 1}`:   "threshold floor x",
		`{"signals": []}`:                         "signals",
		`{"signals": null}`:                       "signals",
		`{"signals": {"a": 1}}`:                   "signals.a",
		`{"signals": {"a": {}, "a": {}}}`:         "signals.a",
		`{"signals": {"a": {"step": 1}}}`:         "signals.a.step",
		`{"signals": {"a": {"wall": null}}}`:      "signals.a.wall",
		`{"signals": {"a": {"levers": "x"}}}`:     "signals.a.levers",
		`{"signals": {"a": {"levers": [1]}}}`:     "signals.a.levers",
		`{"` + strings.Repeat("x", 1000) + `":1}`: strings.Repeat("x", 80) + "…",
	} {
		_, err := Patch([]byte(text))
		faults, ok := errors.AsType[Faults](err)
		var names []string
		for _, f := range faults {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); !ok || got != want {
			t.Errorf("%.60s: %v; it blames %q", text, err, got)
		}
	}
}

// Who writes 80 where 0.8 is meant hasn't switched the signal off without a word.
func TestPercentIsNoPart(t *testing.T) {
	for text, want := range map[string]string{
		`{"signals": {"redis_memory": {"threshold": 80, "wall": 92}}}`:     "signals.redis_memory.threshold signals.redis_memory.wall",
		`{"signals": {"redis_memory": {"wall": 1.1}}}`:                     "signals.redis_memory.wall",
		`{"signals": {"redis_memory": {"threshold": 0.95, "wall": 1}}}`:    "",
		`{"signals": {"redis_memory": {"threshold": 0, "wall": 0}}}`:       "",
		`{"signals": {"tail_lag": {"threshold": 80000, "wall": 1000000}}}`: "",
	} {
		signals := twoSignals()
		faults, _ := errors.AsType[Faults](Check(patched(t, Defaults(signals), text), signals, []string{Admission, Publish}))
		var names []string
		for _, f := range faults {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %v; it blames %q, want %q", text, faults, got, want)
		}
	}
}

// Every setting can be patched by the name under which it is shown.
func TestPatchKnowsEverySetting(t *testing.T) {
	for _, c := range []struct {
		of     any
		fields map[string]any
	}{{Settings{}, new(Settings).fields()}, {SignalSettings{}, new(SignalSettings).fields()}} {
		for f := range reflect.TypeOf(c.of).Fields() {
			name := f.Tag.Get("json")
			if c.fields[name] == nil && name != signalsName {
				t.Errorf("%s isn't known to a patch", name)
			}
		}
	}
}

// The settings as they are shown are a patch that changes nothing.
func FuzzPatch(f *testing.F) {
	whole, err := json.Marshal(Defaults(twoSignals()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"signals": {"redis_memory": {"wall": 0.82, "levers": []}}, "on": false}`))
	f.Add([]byte(`{"signals": {"a": {"b": [{"c": 1e999}]}}, "step": "\ud800"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		change, err := Patch(raw)
		if err != nil {
			if faults, ok := errors.AsType[Faults](err); !ok || len(faults) == 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		once := Defaults(twoSignals())
		if err := change(&once); err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(once)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(once, patched(t, once.clone(), string(shown))); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(once, patched(t, once.clone(), string(raw))); diff != "" {
			t.Fatalf("twice is something else than once: %s", diff)
		}
	})
}
