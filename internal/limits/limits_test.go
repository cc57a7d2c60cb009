package limits_test

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/limits"
)

// definitions are one limit of each kind.
func definitions() []limits.Definition {
	return []limits.Definition{
		{Name: "streams", Unit: "streams", Default: 4, Least: 1, Most: 1000, Help: "h", Reached: "r", Change: limits.Running},
		{Name: "rate", Unit: "entries/s", Least: 1, Most: 100, Off: true, Zero: "no limit", Help: "h", Reached: "r", Change: limits.Running},
		{
			Name: "size", Unit: "bytes", Default: 1024, Least: 1, Most: 1 << 20, Help: "h", Reached: "r", Change: limits.Running,
			Parse: func(text string) (int64, error) {
				if text == "2KiB" {
					return 2048, nil
				}
				return 0, errors.New("isn't a size")
			},
		},
		{Name: "header", Unit: "bytes", Default: 16, Least: 1, Most: 100, Help: "h", Reached: "r", Change: limits.Restart},
	}
}

func state(t *testing.T, r *limits.Registry, name string) limits.State {
	t.Helper()
	for _, s := range r.States() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no limit %s", name)
	return limits.State{}
}

func wish(name string, value int64) limits.Wish { return limits.Wish{Name: name, Value: &value} }

func TestAValueCountsAtOnceWhereItIsEnforced(t *testing.T) {
	r := limits.New(definitions(), limits.Setting{Name: "streams", Value: 7, Origin: "file", Where: "f.yml:3"})
	value, highest := r.Value("streams"), r.Highest("streams")
	if value() != 7 || r.Value("size")() != 1024 {
		t.Fatalf("%d", value())
	}
	states, changes, err := r.Patch([]limits.Wish{wish("streams", 2)})
	if err != nil || value() != 2 || highest() != 7 {
		t.Fatalf("%d %d %v", value(), highest(), err)
	}
	if diff := cmp.Diff([]limits.Changed{{Name: "streams", Before: 7, After: 2}}, changes); diff != "" {
		t.Error(diff)
	}
	got := states[0]
	if got.Configured != 2 || got.Effective != 2 || got.Origin != limits.FromAPI || !strings.Contains(got.Why, "the configuration says 7 (f.yml:3)") {
		t.Errorf("%+v", got)
	}
	// Null takes it back.
	if _, _, err := r.Patch([]limits.Wish{{Name: "streams"}}); err != nil || value() != 7 {
		t.Errorf("%d %v", value(), err)
	}
	if got := state(t, r, "streams"); got.Origin != "file" || got.Where != "f.yml:3" || got.Why != "" {
		t.Errorf("%+v", got)
	}
}

func TestABoundSaysWhy(t *testing.T) {
	r := limits.New(definitions())
	r.Bind("streams", func(configured int64) (int64, string) {
		if configured > 5 {
			return 5, "there are 5 chairs"
		}
		return configured, ""
	})
	if got := state(t, r, "streams"); got.Effective != 4 || got.Why != "" {
		t.Errorf("%+v", got)
	}
	if _, _, err := r.Patch([]limits.Wish{wish("streams", 9)}); err != nil {
		t.Fatal(err)
	}
	if got := state(t, r, "streams"); got.Configured != 9 || got.Effective != 5 || !strings.HasPrefix(got.Why, "there are 5 chairs; ") || r.Value("streams")() != 5 {
		t.Errorf("%+v", got)
	}
}

// A PATCH stands until the configuration's own value changes.
func TestWhoWins(t *testing.T) {
	file := func(streams int64) []limits.Setting {
		return []limits.Setting{
			{Name: "streams", Value: streams, Origin: "file", Where: "f.yml:1"},
			{Name: "size", Value: 1024, Origin: "default"},
		}
	}
	r := limits.New(definitions(), file(7)...)
	value := r.Value("streams")
	patch := func(v int64) {
		if _, _, err := r.Patch([]limits.Wish{wish("streams", v)}); err != nil {
			t.Fatal(err)
		}
	}
	patch(3)
	if changes := r.Load(file(7)); value() != 3 || len(changes) != 0 {
		t.Errorf("the same file again: %d %v", value(), changes)
	}
	if changes := r.Load(file(8)); value() != 8 || len(changes) != 1 {
		t.Errorf("another value: %d %v", value(), changes)
	}
	patch(3)
	if r.Load(file(9)); value() != 9 {
		t.Errorf("and another: %d", value())
	}
	if got := state(t, r, "streams"); got.Origin != "file" || got.Why != "" {
		t.Errorf("%+v", got)
	}
}

func TestWhatCountsAfterARestartIsSaid(t *testing.T) {
	r := limits.New(definitions())
	changes := r.Load([]limits.Setting{{Name: "header", Value: 20, Origin: "file", Where: "f.yml:9"}, {Name: "no such", Value: 1}})
	got := state(t, r, "header")
	if len(changes) != 0 || got.Effective != 16 || got.AfterRestart == nil || *got.AfterRestart != 20 || !strings.Contains(got.Why, "says 20 (f.yml:9), which counts after a restart") {
		t.Errorf("%v %+v", changes, got)
	}
	r.Load([]limits.Setting{{Name: "header", Value: 16, Origin: "default"}})
	if got := state(t, r, "header"); got.AfterRestart != nil || got.Why != "" {
		t.Errorf("%+v", got)
	}
}

func TestUseAndWhatTheSystemGives(t *testing.T) {
	r := limits.New(definitions())
	r.Uses("streams", func() float64 { return 3 })
	r.Found(limits.Descriptors, 1000)
	if got := state(t, r, "streams"); got.Used == nil || *got.Used != 3 {
		t.Errorf("%+v", got)
	}
	if got := state(t, r, limits.Descriptors); got.Effective != 1000 || got.Origin != limits.FromSystem || !strings.Contains(got.How, "ulimit") {
		t.Errorf("%+v", got)
	}
}

// All or nothing, and all that is wrong is said.
func TestPatchOverHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		media, body string
		status      int
		want        []string
	}{
		"one":              {body: `{"streams": 8}`, status: 200, want: []string{`"name":"streams"`, `"configured":8`, `"effective":8`, `"origin":"api"`}},
		"a size":           {body: `{"size": "2KiB"}`, status: 200, want: []string{`"effective":2048`}},
		"off":              {body: `{"rate": 0, "streams": null}`, status: 200, want: []string{`"zero":"no limit"`, `"name":"streams"`}},
		"nothing":          {body: `{}`, status: 200, want: []string{`"limits":[]`}},
		"merge patch":      {media: "application/merge-patch+json; charset=utf-8", body: `{"streams": 8}`, status: 200},
		"unknown":          {body: `{"streams": 8, "streems": 1}`, status: 400, want: []string{"streems is not a limit", `"field":"streems"`, "invalid-limit"}},
		"unknown null":     {body: `{"streems": null}`, status: 400, want: []string{"streems is not a limit"}},
		"out of range":     {body: `{"streams": 8, "rate": 101}`, status: 400, want: []string{"rate can't be 101; allowed: 0, or 1 to 100"}},
		"all that's wrong": {body: `{"streams": 0, "header": 8, "device_id_bytes": 1}`, status: 400, want: []string{"streams can't be 0", "header can't be changed while the gateway runs", "device_id_bytes can't be changed here"}},
		"twice":            {body: `{"streams": 8, "streams": 9}`, status: 400, want: []string{"streams stands twice"}},
		"a fraction":       {body: `{"streams": 8.5}`, status: 400, want: []string{"can't be 8.5; write a whole number of streams"}},
		"too large":        {body: `{"streams": 99999999999999999999}`, status: 400, want: []string{"whole number"}},
		"a text":           {body: `{"streams": "8"}`, status: 400, want: []string{"whole number"}},
		"no size":          {body: `{"size": "big"}`, status: 400, want: []string{"whole number of bytes"}},
		"an object":        {body: `{"streams": {"a": 1}}`, status: 400, want: []string{"whole number"}},
		"a list":           {body: `[1]`, status: 400, want: []string{"it isn't one JSON object", "invalid-json"}},
		"no JSON":          {body: `{"streams": 8`, status: 400, want: []string{"invalid-json"}},
		"two objects":      {body: `{"streams": 8}{}`, status: 400, want: []string{"invalid-json"}},
		"a form":           {media: "application/x-www-form-urlencoded", body: `streams=8`, status: 415},
		"large":            {body: `{"streams": ` + strings.Repeat(" ", 1<<17) + `8}`, status: 413},
	} {
		t.Run(name, func(t *testing.T) {
			r := limits.New(definitions())
			r.ReadFile(limits.File{Path: "f.yml"})
			req := httptest.NewRequest("PATCH", limits.Path, strings.NewReader(c.body))
			req.Header.Set("Content-Type", "application/json")
			if c.media != "" {
				req.Header.Set("Content-Type", c.media)
			}
			w := httptest.NewRecorder()
			limits.Apply(r, slog.New(slog.DiscardHandler)).ServeHTTP(w, req)
			if w.Code != c.status {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			for _, want := range c.want {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("no %s in %s", want, w.Body)
				}
			}
			if got := state(t, r, "streams"); c.status != 200 && got.Effective != 4 {
				t.Errorf("a part of it counts: %+v", got)
			}
		})
	}
}

func FuzzPatch(f *testing.F) {
	for _, body := range []string{`{"streams":8}`, `{"size":"2KiB","rate":null}`, `{"a":1,"a":{}}`, `[`, `{"streams":1e3}`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := limits.New(definitions())
		req := httptest.NewRequest("PATCH", limits.Path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		limits.Apply(r, slog.New(slog.DiscardHandler)).ServeHTTP(w, req)
		for _, s := range r.States() {
			if s.Change != limits.Running && s.Effective != s.Default {
				t.Errorf("%s was changed by %q", s.Name, body)
			}
		}
		if v := r.Value("streams")(); v < 1 || v > 1000 || w.Code != 200 && v != 4 {
			t.Errorf("streams is %d after %d %q", v, w.Code, body)
		}
	})
}

// Whatever is done to a registry, what is shown is what is read, it is allowed,
// and the API's word is the last one since the configuration changed.
func TestShownIsEnforced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 1000).Draw(t, "bound")
		r := limits.New(definitions())
		r.Bind("streams", func(v int64) (int64, string) { return min(v, most), "" })
		value := r.Value("streams")
		base, word := int64(4), int64(0) // 0: none
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			v := rapid.Int64Range(0, 1200).Draw(t, "value")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if _, _, err := r.Patch([]limits.Wish{wish("streams", v)}); (err == nil) != (v >= 1 && v <= 1000) {
					t.Fatalf("%d: %v", v, err)
				} else if err == nil {
					word = v
				}
			case 1:
				if _, _, err := r.Patch([]limits.Wish{{Name: "streams"}}); err != nil {
					t.Fatal(err)
				}
				word = 0
			case 2:
				v = max(min(v, 1000), 1) // the configuration is checked before
				r.Load([]limits.Setting{{Name: "streams", Value: v, Origin: "file"}})
				if v != base {
					base, word = v, 0
				}
			}
			want := base
			if word != 0 {
				want = word
			}
			for _, s := range r.States() {
				if s.Name == "streams" && (s.Configured != want || s.Effective != min(want, most) || int64(value()) != s.Effective) {
					t.Fatalf("%+v, read is %d, want %d", s, value(), want)
				}
			}
		}
	})
}
