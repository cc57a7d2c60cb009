package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// EnvPrefix starts the name of every setting in the environment.
const EnvPrefix = "DOWNLINK_"

// A Key describes one setting, for help, reference and messages.
type Key struct {
	Name    string // in the file: write_timeout
	Flag    string // on the command line: --write-timeout
	Env     string // in the environment: DOWNLINK_WRITE_TIMEOUT
	Group   string // heading in the reference
	Of      string // the commands that it is a setting of, with a space between; empty: of all
	Kind    string // text, duration, size, number or switch
	Default string // as it would be written; empty if there is none
	Allowed string // which values it takes
	Help    string // what it is, with its unit
	Price   string // what more or less of it costs; may be empty
	Secret  bool   // its value may hold a password
	Shown   bool   // it is a URL, or several, that may be shown unless there is room for a password
	Limit   string // how it is changed, if it caps something: running or restart
	Running bool   // it is changed while a program runs, without being a limit

	field int // index in Config
}

// For reports whether the setting is one of the command: Serve, Dial or Governor.
func (k Key) For(command string) bool {
	return k.Of == "" || slices.Contains(strings.Fields(k.Of), command)
}

// owners names the commands for people.
func (k Key) owners() string {
	return "downlink " + strings.Join(strings.Fields(k.Of), " and downlink ")
}

// The commands that have settings.
const (
	Serve    = "serve"
	Dial     = "dial"
	Governor = "governor"
)

// Keys lists every setting, in the order of Config.
func Keys() []Key {
	t := reflect.TypeFor[Config]()
	keys := make([]Key, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		flag := f.Tag.Get("name")
		if f.Tag.Get("allowed") == "" {
			continue // File
		}
		k := Key{
			Name:    strings.ReplaceAll(flag, "-", "_"),
			Flag:    "--" + flag,
			Env:     envName(flag),
			Group:   f.Tag.Get("group"),
			Of:      f.Tag.Get("of"),
			Kind:    kindName(f.Type),
			Default: f.Tag.Get("default"),
			Allowed: f.Tag.Get("allowed"),
			Help:    f.Tag.Get("help"),
			Price:   f.Tag.Get("price"),
			Secret:  f.Tag.Get("secret") != "",
			Shown:   f.Tag.Get("shown") != "",
			Limit:   f.Tag.Get("limit"),
			Running: f.Tag.Get("change") == "running",
			field:   i,
		}
		if f.Type.Kind() == reflect.Bool {
			k.Default = "false"
		}
		keys = append(keys, k)
	}
	return keys
}

// flagName is a setting's name on the command line, without the dashes.
func flagName(name string) string { return strings.ReplaceAll(name, "_", "-") }

func envName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Bytes]():
		return "size"
	case t.Kind() == reflect.Int64:
		return "duration"
	case t.Kind() == reflect.Int:
		return "number"
	case t.Kind() == reflect.Bool:
		return "switch"
	default:
		return "text"
	}
}

// show is a value as it may be shown to anybody.
func (k Key) show(text string) string {
	if k.Shown && !strings.ContainsAny(text, "@?#") {
		return text
	}
	_, rest, isURL := strings.Cut(text, "://")
	if !isURL && (!k.Secret || strings.HasPrefix(text, "file:")) {
		return text
	}
	// What Mask relies on must hold, or nothing but the scheme is shown: a
	// password may stand anywhere in a URL that was mistyped. One in another
	// setting's place is a URL too.
	if isURL && plainHost.MatchString(rest[strings.LastIndexByte(rest, '@')+1:]) {
		return Mask(text)
	}
	if scheme, _, _ := strings.Cut(text, ":"); schemeForm.MatchString(scheme) {
		return scheme + ":***"
	}
	return "***"
}

var (
	plainHost  = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9._-]*)(:[0-9]+)?(/[0-9]*)?(\?.*)?$`)
	schemeForm = regexp.MustCompile(`^(file|rediss?|https?)$`)
)

// Mask hides what may be secret in a text that holds a URL: user and password
// before the "@", and the query. It works on what isn't a valid URL too, since
// that is when it is most likely to be shown.
func Mask(text string) string {
	before, rest, found := strings.Cut(text, "://")
	if !found {
		return text
	}
	if q := strings.LastIndexByte(rest, '?'); q > strings.LastIndexByte(rest, '@') {
		rest = rest[:q] + "?***"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, hasPassword := strings.Cut(rest[:at], ":")
		if !hasPassword {
			user = "***" // a user name alone may be a token
		} else if user != "" {
			user += ":***"
		} else {
			user = ":***"
		}
		rest = user + rest[at:]
	}
	return before + "://" + rest
}
