package config

import (
	"maps"
	"reflect"
)

// Path is the configuration file's; empty if there is none. It is known once
// the command line has been parsed.
func (l *Loader) Path() string { return l.path }

// Reread reads the configuration file again: what a start with the same
// command line and environment would have now. The loader that it returns
// belongs to that configuration, as l does to c, and neither of those changes.
// The error is what Check finds.
func (l *Loader) Reread(c *Config) (*Loader, *Config, error) {
	again := &Loader{environ: l.environ, known: l.known, command: l.command, read: true, path: l.path, origins: maps.Clone(l.origins)}
	again.file, again.problems = readFile(l.path, l.known)
	now := *c
	if again.file == nil && len(again.problems) > 0 {
		return nil, nil, again.problems // without it every setting would be judged by its default
	}
	for _, key := range Keys() {
		if l.origin(key).Source == FromFlag {
			continue
		}
		delete(again.origins, key.Name)
		text, origin := again.lookup(key)
		if origin.Source == FromDefault {
			text = key.Default
		} else {
			again.origins[key.Name] = origin
		}
		field := reflect.ValueOf(&now).Elem().Field(key.field)
		value, err := parse(field.Type(), text)
		if err != nil {
			again.unreadable(key, text, origin, err)
			continue
		}
		field.Set(value)
	}
	return again, &now, again.Check(&now)
}

// Differences names the settings that two configurations have differently and
// that count after a restart only, limits aside, in the order of Config.
func Differences(a, b *Config) []string {
	var names []string
	for _, key := range Keys() {
		before, now := reflect.ValueOf(a).Elem().Field(key.field), reflect.ValueOf(b).Elem().Field(key.field)
		if key.Limit == "" && !key.Running && !before.Equal(now) {
			names = append(names, key.Name)
		}
	}
	return names
}
