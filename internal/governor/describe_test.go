package governor

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every setting is described, and its ends are those that are allowed: a little
// further out it is refused.
func TestSettingsAreDescribed(t *testing.T) {
	signals := []Signal{{Probe: named("x"), Unit: "entries", Threshold: 1, Wall: 2, Levers: []string{Publish}}}
	defaults := written(Defaults(signals))
	var names []string
	for _, d := range Describe(signals) {
		names = append(names, d.Name)
		if d.Help == "" || d.Default == "" || d.Allowed == "" {
			t.Errorf("%+v", d)
		}
		least, most, ranged := strings.Cut(d.Allowed, " to ")
		if !ranged {
			continue
		}
		for end, out := range map[string]float64{least: -1, most: 1} {
			if other, is := defaults[end]; is {
				end = other
			}
			if outside := beyond(t, end, out); refused(d.Name, end) || !refused(d.Name, outside) {
				t.Errorf("%s: %s isn't the last that is allowed before %s", d.Name, end, outside)
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(defaults)), slices.Sorted(slices.Values(names))); diff != "" {
		t.Errorf("settings and descriptions: %s", diff)
	}
}

// beyond is a little further out than the end of a range.
func beyond(t *testing.T, end string, out float64) string {
	t.Helper()
	if d, err := time.ParseDuration(end); err == nil && end != "0" {
		return (d + time.Duration(out)).String()
	}
	v, err := strconv.ParseFloat(end, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatFloat(v*(1+out/1000), 'g', -1, 64)
}

// refused reports whether a setting can't have a value.
func refused(name, value string) bool {
	if !json.Valid([]byte(value)) { // a duration
		value = strconv.Quote(value)
	}
	s := Defaults(nil)
	change, err := Patch([]byte(`{` + strconv.Quote(name) + `:` + value + `}`))
	if err == nil {
		err = change(&s)
	}
	if err == nil {
		err = s.check([]string{Publish})
	}
	faults, _ := errors.AsType[Faults](err)
	return slices.ContainsFunc(faults, func(f Fault) bool { return f.Name == name })
}
