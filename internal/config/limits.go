package config

import (
	"fmt"
	"reflect"

	"downlink/internal/limits"
)

// Limits defines the settings that cap something, in the order of Config.
func Limits() []limits.Definition {
	return append(LimitsOf(Serve), limitsOf(func(k Key) bool { return !k.For(Serve) })...)
}

// LimitsOf defines those of a command.
func LimitsOf(command string) []limits.Definition {
	return limitsOf(func(k Key) bool { return k.For(command) })
}

func limitsOf(want func(Key) bool) []limits.Definition {
	t := reflect.TypeFor[Config]()
	var definitions []limits.Definition
	for _, k := range Keys() {
		if k.Limit == "" || !want(k) {
			continue
		}
		f := t.Field(k.field)
		d := limits.Definition{
			Name: k.Name, Unit: f.Tag.Get("unit"), Zero: f.Tag.Get("zero"), Help: k.Help, Price: k.Price,
			Reached: f.Tag.Get("reached"), Change: limits.Change(k.Limit),
			Parse: func(text string) (int64, error) {
				v, err := parse(f.Type, text)
				if err != nil {
					return 0, err
				}
				return v.Int(), nil
			},
		}
		// TestLimitsAreDefined holds every limit to a form that can be read.
		if v, err := parse(f.Type, k.Default); err == nil && v.CanInt() {
			d.Default = v.Int()
		}
		if r, ok := rangeOf(k.Allowed, f.Type); ok {
			d.Least, d.Most, d.Off = r.least, r.most, r.off
			if k.Kind == "size" && !r.off {
				d.Allowed = k.Allowed // 64GiB says more than 68719476736
			}
		}
		definitions = append(definitions, d)
	}
	return definitions
}

// Limits are the values of a configuration for its limits, and where each came
// from.
func (l *Loader) Limits(c *Config) []limits.Setting {
	var settings []limits.Setting
	for _, k := range Keys() {
		if k.Limit == "" {
			continue
		}
		o := l.origin(k)
		value := reflect.ValueOf(c).Elem().Field(k.field)
		settings = append(settings, limits.Setting{
			Name: k.Name, Value: value.Int(), Origin: limits.Origin(o.Source), Where: o.Where,
			Beside: l.beside(k, o, format(value)),
		})
	}
	return settings
}

// beside says what the file asks for and doesn't get, because another source
// has another value.
func (l *Loader) beside(k Key, o Origin, value string) string {
	v, ok := l.file[k.Name]
	if !ok {
		return ""
	}
	wanted, err := parse(reflect.TypeFor[Config]().Field(k.field).Type, v.text)
	if err != nil || format(wanted) == value {
		return ""
	}
	return fmt.Sprintf("%s:%d asks for %d, but %s wins over the file", l.path, v.line, wanted.Int(), o)
}
