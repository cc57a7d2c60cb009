package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/config"
)

// loopback makes a configuration acceptable apart from what a test is about.
const loopback = "--listen=127.0.0.1:0"

func problems(t *testing.T, args, environ []string) []string {
	t.Helper()
	_, err := config.Load(args, environ)
	if err == nil {
		return nil
	}
	var ps config.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("not Problems: %v", err)
	}
	return strings.Split(ps.Error(), "\n")
}

func TestDefaultsAreThoseOfTheDesign(t *testing.T) {
	got, err := config.Load([]string{"--insecure-no-auth"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Listen: ":8080", GovernorListen: "127.0.0.1:9095", BackendListen: "127.0.0.1:9090", Auth: "none", NoAuth: true,
		ReadHeaderTimeout: 5 * time.Second, ShutdownTimeout: 10 * time.Second,
		JWKSRefresh: 5 * time.Minute, JWKSMaxAge: 24 * time.Hour, JWTLeeway: 10 * time.Second,
		JWTDevice: "sub", JWTGroups: "groups", JWTCookie: "downlink_token",
		CRLGrace: 24 * time.Hour, MTLSDevice: "cn", MTLSForm: "{device}", MTLSGroups: "none",
		BackendAuth: "none", BackendLeeway: 10 * time.Second, TicketTTL: 30 * time.Second, TicketSession: time.Hour,
		Log: "file:downlink-data", Prefix: "pos-ev", Shards: 64, Groups: 16, Durability: "primary", ReadFrom: "primary",
		Window: 15 * time.Minute, SweepEvery: 5 * time.Second, Failover: "cautious",
		HotWindow: 64 << 20, PublishLimit: 5 * time.Second, MaxEvent: 1 << 20,
		Keepalive: 20 * time.Second, WriteTimeout: 30 * time.Second, Retry: 3 * time.Second,
		Driver: "light", Streams: 4, Pending: 256, PendingBytes: 1 << 20,
		DrainWait: 5 * time.Second, DrainRate: 200, DrainDeadline: 80 * time.Second, Isolation: time.Minute,
		RebalanceOver: 20, Governor: "on", GovernorFloor: 10, GovernorSpare: 20, ShedAfter: 2 * time.Minute, RebalanceTime: 5 * time.Minute,
		MaxHandshakes: 4096, MaxHeader: 16 << 10, MaxStreams: 250, TrailEntries: 10_000,
		LogLevel: "info", LogFormat: "text",
		Owner: "none", Transport: "post", InvInterval: 10 * time.Second, InvDevices: 100_000, InvMaxDrop: 20, DialSchemes: "https,wss",
		Replication: 1, LeaseTTL: 15 * time.Second,
		DialTimeout: 5 * time.Second, DialBackoff: time.Minute, PostTimeout: 10 * time.Second, DialRate: 100, Posts: 256,
		PushWait: time.Second, PushInFlight: 4096, PushPerDevice: 1, PushAnswer: 64 << 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPlainDefaultsAreRefusedWithTheWayOut(t *testing.T) {
	got := problems(t, nil, nil)
	if len(got) != 1 || !strings.HasPrefix(got[0], `listen ":8080" (default)`) ||
		!strings.Contains(got[0], "--listen 127.0.0.1:8080") || !strings.Contains(got[0], "--insecure-no-auth") {
		t.Errorf("got %q", got)
	}
}

func TestLoopback(t *testing.T) {
	for address, local := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.9.1:1": true, "[::1]:8080": true, "localhost:8080": true, "[::ffff:127.0.0.1]:80": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:80": false, "example.org:80": false, "localhost.example.org:80": false,
	} {
		if got := problems(t, []string{"--listen", address}, nil); (got == nil) != local {
			t.Errorf("%s: %q", address, got)
		}
		if got := problems(t, []string{"--listen", address, "--insecure-no-auth"}, nil); got != nil {
			t.Errorf("%s with --insecure-no-auth: %q", address, got)
		}
	}
}

func TestPrecedence(t *testing.T) {
	path := write(t, "window: 1m\nretry: 1s\nkeepalive: 1s\nallow_eviction: true\n")
	environ := []string{"DOWNLINK_CONFIG=" + path, "DOWNLINK_WINDOW=2m", "DOWNLINK_RETRY=2s", "DOWNLINK_SHARDS=", "OTHER=x"}
	c, err := config.Load([]string{loopback, "--window", "3m"}, environ)
	if err != nil {
		t.Fatal(err)
	}
	if c.Window != 3*time.Minute || c.Retry != 2*time.Second || c.Keepalive != time.Second || c.WriteTimeout != 30*time.Second || !c.AllowEvict || c.Shards != 64 {
		t.Errorf("got %+v", c)
	}
}

func TestFlagNamesTheFileBeforeTheEnvironmentDoes(t *testing.T) {
	path := write(t, "window: 1m\n")
	c, err := config.Load([]string{loopback, "--config", path}, []string{"DOWNLINK_CONFIG=/does/not/exist"})
	if err != nil || c.Window != time.Minute {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	path := write(t, "shards: 0\nretry: soon\nkeepalive: 1s\n")
	got := problems(t, []string{"--config", path, "--window=banana", "--listen=nonsense"}, []string{
		"DOWNLINK_ALLOW_EVICTION=perhaps", "DOWNLINK_WRITE_TIMEOUT=30",
		"DOWNLINK_LOG=redis://admin:hunter2@:6379",
	})
	want := []string{
		`window "banana" (--window) isn't a duration`,
		`allow_eviction "perhaps" (DOWNLINK_ALLOW_EVICTION) is neither true nor false`,
		`write_timeout "30" (DOWNLINK_WRITE_TIMEOUT) isn't a duration: write a number with its unit`,
		`retry "soon" (` + path + `:2) isn't a duration`,
		`shards "0" (` + path + `:1) isn't allowed; allowed: 1 to 1024`,
		`listen "nonsense" (--listen) isn't an address`,
		`log "redis://admin:***@:6379" (DOWNLINK_LOG) isn't accepted: the Redis URL names no host`,
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || strings.HasPrefix(g, w)
		}
		if !found {
			t.Errorf("missing %q in\n%s", w, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

// Each testdata/bad/*.yml carries its expected messages, one a line, after "# want: ".
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(data)) {
			if w, ok := strings.CutPrefix(line, "# want: "); ok {
				want = append(want, strings.ReplaceAll(strings.TrimSpace(w), "FILE", path))
			}
		}
		got := problems(t, []string{"--insecure-no-auth", "--config", path}, nil)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", path, diff)
		}
	}
}

func TestUnreadableFile(t *testing.T) {
	for _, path := range []string{"does-not-exist.yml", t.TempDir()} {
		got := problems(t, []string{loopback, "--config", path}, nil)
		if len(got) != 1 || !strings.Contains(got[0], path) || !strings.Contains(got[0], "can't be read") {
			t.Errorf("got %q", got)
		}
	}
	if got := problems(t, []string{loopback, "--config", write(t, "# nothing\n")}, nil); got != nil {
		t.Errorf("a file of comments: %q", got)
	}
	if got := problems(t, []string{loopback, "--config", write(t, "")}, nil); got != nil {
		t.Errorf("an empty file: %q", got)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	for _, log := range []string{
		"redis://admin:hunter2@host:6379/x", "redis://:hunter2@", "redis://ad:hunter2/@host", "redis://ad:hunt#hunter2@host",
		"redis://ad:%zzhunter2@host", "redis://ad:a@hunter2@host:x", "rediss://hunter2@host:1/9999999", "redis://host?password=hunter2",
		"redis+what://a:hunter2@host", "redis://a:hunter2?@host",
	} {
		for _, set := range []struct{ args, environ []string }{
			{args: []string{loopback, "--log", log}},
			{args: []string{loopback}, environ: []string{"DOWNLINK_LOG=" + log}},
			{args: []string{loopback, "--config", write(t, "log: '"+log+"'\n")}},
		} {
			got := strings.Join(problems(t, set.args, set.environ), "\n")
			if got == "" || strings.Contains(got, "hunter2") {
				t.Errorf("%s: %q", log, got)
			}
		}
	}
	broken := write(t, "log: redis://a:hunter2@h\n  shards: 3\n\tx\n")
	if got := strings.Join(problems(t, []string{loopback, "--config", broken}, nil), ""); got == "" || strings.Contains(got, "hunter2") {
		t.Errorf("broken file: %q", got)
	}
}

func TestGoodLogs(t *testing.T) {
	for _, log := range []string{
		"file:x", "file:/var/lib/downlink", "redis://host", "redis://host:6379/3", "redis://user:p%40ss@host:1", "redis://[::1]:6379", "rediss://:x@host/0",
	} {
		if got := problems(t, []string{loopback, "--log", log}, nil); got != nil {
			t.Errorf("%s: %q", log, got)
		}
	}
}

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"file:downlink-data":         "file:downlink-data",
		"redis://h:6379/0":           "redis://h:6379/0",
		"redis://u:p@h:6379/0":       "redis://u:***@h:6379/0",
		"redis://:p@h":               "redis://:***@h",
		"redis://token@h":            "redis://***@h",
		"redis://u:p@ss@h":           "redis://u:***@h",
		"redis://h?password=p":       "redis://h?***",
		"redis://u:p?q@h?password=p": "redis://u:***@h?***",
	} {
		if got := config.Mask(in); got != want {
			t.Errorf("Mask(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{
		"0": 0, "1": 1, "512B": 512, "1KiB": 1 << 10, "64MiB": 64 << 20, "2 GiB": 2 << 30, "1kB": 1000, "3MB": 3e6, "1GB": 1e9,
	} {
		if got, err := config.ParseBytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "1M", "1m", "1K", "-1", "+1", "1.5MiB", "1 2", "99999999999GiB", "9223372036854775808", "1TiB", "MiB1", "1MiBB"} {
		if got, err := config.ParseBytes(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
	for b, want := range map[config.Bytes]string{0: "0B", 1: "1B", 1 << 20: "1MiB", 1<<20 + 1: "1048577B", 1536: "1536B", 3 << 30: "3GiB"} {
		if got := b.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
		if back, err := config.ParseBytes(want); err != nil || back != b {
			t.Errorf("%s: read back as %d, %v", want, back, err)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "downlink.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNoFormOfALogShowsItsPassword: a password may stand anywhere in a URL that
// was mistyped, or was meant for another setting.
func TestNoFormOfALogShowsItsPassword(t *testing.T) {
	const secret = "secretmarker"
	for _, text := range []string{
		"redis:u:" + secret + "@h", "redis:/u:" + secret + "@h", `redis:\\u:` + secret + "@h", "u:" + secret + "@h:6379",
		"redis//u:" + secret + "@h", ":" + secret + "@h", "redis://u:" + secret, "redis://u:x@h#" + secret, "redis://u:p@h/" + secret,
		"redis://u:" + secret + "@h:6379/0", "rediss://:" + secret + "@h", "redis://u:" + secret + "@h/@x", secret,
	} {
		for _, name := range []string{"log", "prefix", "shards", "window"} {
			args := []string{"--listen", "127.0.0.1:0", "--" + name, text}
			if text == secret && name != "log" {
				continue // nothing says that it is one
			}
			loader := config.NewLoader(nil)
			c, err := config.Load(args, nil)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if c != nil {
				for _, s := range loader.Settings(c) {
					said += s.Value
				}
			}
			if strings.Contains(said, secret) && (name == "log" || strings.Contains(text, "://")) {
				t.Errorf("--%s %s says %s", name, text, said)
			}
		}
	}
}
