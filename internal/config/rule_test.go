package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// Every numeric setting's "allowed" text must be one that within executes, and
// must refuse the values just outside it.
func TestRulesAreExecutable(t *testing.T) {
	for _, key := range Keys() {
		if key.Kind == "text" || key.Kind == "switch" {
			continue
		}
		bounds, off := strings.CutPrefix(key.Allowed, "0 (off), or ")
		low, high, ok := strings.Cut(bounds, " to ")
		if !ok {
			t.Errorf("%s: %q isn't executable", key.Name, key.Allowed)
			continue
		}
		typ := reflect.TypeFor[Config]().Field(key.field).Type
		least, err1 := parse(typ, low)
		most, err2 := parse(typ, high)
		if err1 != nil || err2 != nil || least.Int() >= most.Int() {
			t.Errorf("%s: %q isn't executable: %v %v", key.Name, key.Allowed, err1, err2)
			continue
		}
		at := func(n int64) reflect.Value { return reflect.ValueOf(n).Convert(typ) }
		if !within(key.Allowed, least) || !within(key.Allowed, most) || within(key.Allowed, at(most.Int()+1)) || within(key.Allowed, at(-1)) {
			t.Errorf("%s: bounds of %q don't hold", key.Name, key.Allowed)
		}
		if within(key.Allowed, at(0)) != (off || least.Int() == 0) {
			t.Errorf("%s: 0 against %q", key.Name, key.Allowed)
		}
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range Keys() {
		if key.Help == "" || key.Group == "" || key.Allowed == "" || seen[key.Name] {
			t.Errorf("%+v", key)
		}
		seen[key.Name] = true
		if key.Default == "" {
			continue
		}
		typ := reflect.TypeFor[Config]().Field(key.field).Type
		value, err := parse(typ, key.Default)
		if err != nil || !within(key.Allowed, value) {
			t.Errorf("%s: default %q: %v", key.Name, key.Default, err)
		}
	}
}

func TestOriginsAndMaskedSettings(t *testing.T) {
	var c Config
	l := NewLoader([]string{"DOWNLINK_LOG=redis://u:hunter2@h", "DOWNLINK_WRITE_TIMOUT=1s", "DOWNLINK_SERVICE_HOST=10.0.0.1", "DOWNLINK_PORT_80_TCP=x"})
	parser, err := kong.New(&c, l.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"--window=90m", "--backend-listen=:9090", "--insecure-open-backend", "--listen=127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(&c); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"log": "redis://u:***@h DOWNLINK_LOG", "window": "1h30m --window", "shards": "64 default", "hot_window_bytes": "64MiB default", "auth": "none default"}
	for _, s := range l.Settings(&c) {
		if w, ok := want[s.Key.Name]; ok && s.Value+" "+s.Origin.String() != w {
			t.Errorf("%s: %s %s, want %s", s.Key.Name, s.Value, s.Origin, w)
		}
	}
	warnings := l.Warnings(&c)
	if len(warnings) != 2 || !strings.Contains(warnings[0], "backend_listen") || !strings.Contains(warnings[1], "did you mean write_timeout?") {
		t.Errorf("warnings: %q", warnings)
	}
	if slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "SERVICE") }) {
		t.Errorf("a variable of Kubernetes is complained about: %q", warnings)
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 15 * time.Minute: "15m", 90 * time.Minute: "1h30m", 168 * time.Hour: "168h", 90 * time.Second: "1m30s", 100 * time.Millisecond: "100ms",
		time.Hour + 10*time.Second: "1h0m10s", 10 * time.Minute: "10m", 20 * time.Hour: "20h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("window: 1m\nshards: 3\n"))
	f.Add([]byte("log: {a: [b]}\n- x"))
	f.Add([]byte("a: &x 1\nb: *x\n<<: *x"))
	known := map[string]Key{}
	for _, k := range Keys() {
		known[k.Name] = k
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, problems := parseFile("f.yml", data, known)
		for name := range values {
			if _, ok := known[name]; !ok {
				t.Errorf("%q is taken as a setting", name)
			}
		}
		_ = problems.Error()
	})
}
