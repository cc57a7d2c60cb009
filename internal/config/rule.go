package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse reads the text of a setting of type t. The error completes the
// sentence "<key> <text> …".
func parse(t reflect.Type, text string) (reflect.Value, error) {
	switch t {
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if err != nil {
			return reflect.Value{}, errors.New("isn't a duration: write a number with its unit ms, s, m or h, for example 30s")
		}
		return reflect.ValueOf(d), nil
	case reflect.TypeFor[Bytes]():
		b, err := ParseBytes(text)
		return reflect.ValueOf(b), err
	case reflect.TypeFor[int]():
		n, err := strconv.Atoi(text)
		if err != nil {
			return reflect.Value{}, errors.New("isn't a whole number")
		}
		return reflect.ValueOf(n), nil
	case reflect.TypeFor[bool]():
		b, err := strconv.ParseBool(text)
		if err != nil {
			return reflect.Value{}, errors.New("is neither true nor false")
		}
		return reflect.ValueOf(b), nil
	case reflect.TypeFor[List]():
		return reflect.ValueOf(List(text)), nil
	default:
		return reflect.ValueOf(text), nil
	}
}

// format is the text that parse reads as v.
func format(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	default:
		return fmt.Sprint(x)
	}
}

// formatDuration leaves out the zeros at the end: 15m, not 15m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// within executes an "allowed" text of one of the forms "A to B",
// "0 (off), or A to B", "one of: a, b", "several of: a, b"; other texts are for people, and
// Check has a function for them.
func within(allowed string, v reflect.Value) bool {
	if list, ok := strings.CutPrefix(allowed, "one of: "); ok {
		return slices.Contains(strings.Split(list, ", "), v.String())
	}
	if list, ok := strings.CutPrefix(allowed, "several of: "); ok {
		items := List(v.String()).Items()
		return len(items) > 0 && !slices.ContainsFunc(items, func(item string) bool { return !slices.Contains(strings.Split(list, ", "), item) })
	}
	r, ok := rangeOf(allowed, v.Type())
	return !ok || !v.CanInt() || r.off && v.Int() == 0 || r.least <= v.Int() && v.Int() <= r.most
}

// A valueRange is what a text of the form "A to B" or "0 (off), or A to B" allows.
type valueRange struct {
	least, most int64
	off         bool // 0 too
}

// rangeOf reads such a text for values of type t; ok is false for texts of
// another form, which are for people. TestRulesAreExecutable holds their list.
func rangeOf(allowed string, t reflect.Type) (r valueRange, ok bool) {
	bounds, off := strings.CutPrefix(allowed, "0 (off), or ")
	low, high, ok := strings.Cut(bounds, " to ")
	if !ok {
		return valueRange{}, false
	}
	least, err1 := parse(t, low)
	most, err2 := parse(t, high)
	if err1 != nil || err2 != nil || !least.CanInt() {
		return valueRange{}, false
	}
	return valueRange{least.Int(), most.Int(), off}, true
}
