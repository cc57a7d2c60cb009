package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"downlink/internal/config"
)

// forDial loads settings as downlink dial does.
func forDial(t *testing.T, args, environ []string) (*config.Loader, *config.Config, error) {
	t.Helper()
	c := new(config.Config)
	l := config.NewLoader(environ)
	parser, err := kong.New(c, append(l.Options(), kong.Name("downlink"))...)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.As(config.Dial)
	return l, c, l.Check(c)
}

// TestGovernorCombinations: downlink governor is protected as a back end is, and
// has a Redis to watch.
func TestGovernorCombinations(t *testing.T) {
	const redis = "--log=redis://h "
	for args, want := range map[string]string{
		redis:                               "",
		redis + "--governor-listen=[::1]:1": "",
		redis + "--governor-listen=:9095":   "anybody could change what is let in; use --governor-listen 127.0.0.1:9095",
		redis + "--governor-listen=nowhere": "isn't an address",
		redis + "--governor-maximum=-1":     "isn't allowed",
		redis + "--backend-auth=tokens":     "set publishers_file",
		redis + "--listen=127.0.0.1:8080":   "is a setting of downlink serve, and downlink governor has no use for it",
		redis + "--pending-events=9":        "is a setting of downlink serve and downlink dial, and",
		redis + "--backend-listen=:9090":    "is a setting of",
		"--governor-file=dial_test.go":      "",
		"":                                  "name the Redis that is to be watched",
		redis + "--governor-listen=:9095 --insecure-open-backend": "",
	} {
		c := new(config.Config)
		l := config.NewLoader(nil)
		parser, err := kong.New(c, append(l.Options(), kong.Name("downlink"))...)
		if err == nil {
			_, err = parser.Parse(strings.Fields(args))
		}
		if err != nil {
			t.Fatal(err)
		}
		l.As(config.Governor)
		err = l.Check(c)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
		if w := l.Warnings(c); c.OpenBackend != strings.Contains(strings.Join(w, ";"), "can change what is let in") {
			t.Errorf("%s: %q", args, w)
		}
	}
}

func TestDialCombinations(t *testing.T) {
	const redis = "--log=redis://h "
	for args, want := range map[string]string{
		"--inventory=d.yml": "",
		redis + "--inventory=redis --owner=ring --transport=websocket --member=a":                     "",
		redis + "--inventory=https://h/d --owner=static --members=3 --member-index=2 --replication=2": "",
		"--inventory=d.csv --owner=static --members=1 --member-index=0":                               "",
		"": "inventory (default) isn't set",
		"--inventory=d.yml --transport=websocket":                                               `transport "websocket" (--transport) can't be websocket with owner none`,
		"--inventory=d.yml --owner=ring --member=a":                                             "needs a log on Redis, which holds the leases",
		"--inventory=d.yml --owner=static --members=2 --member-index=0":                         "can't share an embedded log",
		redis + "--inventory=d.yml --owner=static --member-index=0":                             "members",
		redis + "--inventory=d.yml --owner=static --members=3 --member-index=3":                 "is 3, but members is 3",
		redis + "--inventory=d.yml --owner=static --members=3 --member-index=x":                 "isn't a number",
		redis + "--inventory=d.yml --owner=static --members=1 --member-index=0 --replication=2": "is more than members (1)",
		redis + "--inventory=d.yml --owner=ring --member=a --members=3":                         "has no effect while owner is ring",
		"--inventory=d.yml --member=a":                                                          "has no effect while owner is none",
		redis + "--inventory=d.yml --owner=ring --member=a\u0001b":                              "isn't a name",
		"--inventory=redis":                                     "log isn't on Redis",
		"--inventory=d.txt":                                     "is neither redis nor a URL nor a file",
		"--inventory=https://u:hunter2@h/d":                     "holds a user or password",
		"--inventory=https:///d":                                "isn't a URL with a host",
		"--inventory=d.yml --dial-allow=all":                    "is neither an address nor a network",
		"--inventory=d.yml --dial-schemes=wss":                  "has none for transport post; add https",
		"--inventory=d.yml --inventory-token-file=dial_test.go": "has no effect unless inventory is a URL",
		"--inventory=d.yml --listen=:8080":                      "is a setting of downlink serve, and downlink dial has no use for it",
		"--inventory=d.yml --drain-deadline=5s":                 "leaves no time to close connections",
		"--inventory=d.yml --device-ca-file=gone.pem":           "there is no such file",
	} {
		_, _, err := forDial(t, strings.Fields(args), nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", args, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q alone", args, err, want)
		}
	}
}

// TestAFileForBothCommands: what is the other one's has no effect, and a warning.
func TestAFileForBothCommands(t *testing.T) {
	path := write(t, "listen: 127.0.0.1:8080\ninventory: d.yml\ndials_per_second: 50\nwindow: 5m\n")
	l, c, err := forDial(t, []string{"--config", path}, nil)
	if err != nil || c.DialRate != 50 {
		t.Fatal(err)
	}
	if w := strings.Join(l.Warnings(c), "\n"); !strings.Contains(w, "listen ("+path+":1) is a setting of downlink serve") || strings.Contains(w, "window") || strings.Contains(w, "inventory (") {
		t.Errorf("dial warns: %s", w)
	}
	for _, s := range l.Settings(c) {
		if s.Key.Of == config.Serve {
			t.Errorf("dial shows %s", s.Key.Name)
		}
	}
	served, err := config.Load([]string{"--config", path}, nil)
	if err != nil || served.Listen != "127.0.0.1:8080" {
		t.Fatal(err)
	}
	if _, err := config.Load([]string{loopback, "--owner=ring"}, nil); err == nil || !strings.Contains(err.Error(), "is a setting of downlink dial") {
		t.Errorf("serve takes --owner: %v", err)
	}
}

// TestLimitsBelongToTheirCommand, and together they are all.
func TestLimitsBelongToTheirCommand(t *testing.T) {
	all := map[string]int{}
	for _, d := range slices.Concat(config.LimitsOf(config.Serve), config.LimitsOf(config.Dial), config.LimitsOf(config.Governor)) {
		all[d.Name]++
	}
	if all["accept_rate"] != 1 || all["dials_per_second"] != 1 || all["max_event_bytes"] != 2 || len(all) != len(config.Limits()) {
		t.Errorf("%v", all)
	}
}

func TestDialWarnings(t *testing.T) {
	for args, want := range map[string]string{
		"--inventory=d.yml --dial-schemes=https,http":                                   "dial_schemes allows http or ws",
		"--inventory=http://h/d":                                                        "inventory is fetched over http",
		"--inventory=d.yml --log=redis://h --owner=static --members=2 --member-index=0": "replication 1",
	} {
		l, c, err := forDial(t, strings.Fields(args), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Warnings(c); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q", args, got)
		}
	}
}

func TestEverySettingIsOfACommand(t *testing.T) {
	for _, k := range config.Keys() {
		for command := range strings.FieldsSeq(k.Of) {
			if !slices.Contains([]string{config.Serve, config.Dial, config.Governor}, command) {
				t.Errorf("%s is of %q", k.Name, k.Of)
			}
		}
	}
	if f, ok := reflect.TypeFor[config.Config]().FieldByName("Owner"); !ok || f.Tag.Get("of") != config.Dial {
		t.Error("owner isn't dial's")
	}
}
