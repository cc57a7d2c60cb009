package config

import (
	"reflect"
	"sort"
	"strings"
)

// A Setting is one effective value and where it came from.
type Setting struct {
	Key    Key
	Value  string // secrets masked
	Origin Origin
}

// Settings lists every effective value of the command's, in the order of Config.
func (l *Loader) Settings(c *Config) []Setting {
	var settings []Setting
	for _, key := range Keys() {
		if key.For(l.command) {
			text := format(reflect.ValueOf(c).Elem().Field(key.field))
			settings = append(settings, Setting{Key: key, Value: key.show(text), Origin: l.origin(key)})
		}
	}
	return settings
}

// Variable is a variable of the environment that isn't a setting, by its name
// after EnvPrefix.
func (l *Loader) Variable(name string) string { return l.environ[EnvPrefix+name] }

// strayVariables lists variables that look like settings and aren't, sorted.
func (l *Loader) strayVariables() []string {
	read := map[string]bool{EnvPrefix + "CONFIG": true, EnvPrefix + "BACKEND": true, EnvPrefix + "URL": true, EnvPrefix + "TOKEN": true}
	for _, k := range l.known {
		read[k.Env] = true
	}
	var stray []string
	for name := range l.environ {
		// Kubernetes sets DOWNLINK_SERVICE_HOST, DOWNLINK_PORT_9090_TCP and
		// more in every pod beside a Service that is named downlink.
		injected := strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT")
		if !read[name] && !injected {
			stray = append(stray, name)
		}
	}
	sort.Strings(stray)
	return stray
}
