package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"downlink/internal/testkit"
)

// loopback are serve's arguments for free ports.
var loopback = []string{"serve", "--listen", "127.0.0.1:0", "--backend-listen", "127.0.0.1:0"}

func serveArgs(more ...string) []string { return append(append([]string{}, loopback...), more...) }

// ends holds how a command ended against an exit code and words of its error.
func ends(t *testing.T, r testkit.Result, code int, words ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("exit code %d, want %d", r.Code, code)
	}
	for _, word := range words {
		if !strings.Contains(r.Err, word) {
			t.Errorf("no %q in the error", word)
		}
	}
	if t.Failed() {
		t.Logf("it wrote:\n%s%s", r.Out, r.Err)
	}
}

// TestPublishAndListen: what is published on the terminal arrives on another.
func TestPublishAndListen(t *testing.T) {
	t.Parallel()
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir())...)
	file := filepath.Join(t.TempDir(), "printed")
	device := program.StartListener(t, file, "--url", g.Device, "--device", "demo", "--json")
	printed := func(n int) []string {
		t.Helper()
		var lines []string
		testkit.Eventually(t, "the listener prints", func() bool {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			return len(lines) >= n && len(text) > 0
		})
		return lines
	}
	printed(1) // the resync of the first connection
	publish := func(in string, more ...string) testkit.Result {
		return program.Run(t, in, append([]string{"publish", "--backend", g.Backend}, more...)...)
	}
	var stored []string
	one := func(r testkit.Result) {
		t.Helper()
		ends(t, r, 0)
		var answer struct{ ID string }
		for line := range strings.Lines(r.Out) {
			if err := json.Unmarshal([]byte(line), &answer); err != nil || answer.ID == "" {
				t.Errorf("answer %q: %v", line, err)
			}
			stored = append(stored, answer.ID)
		}
	}
	one(publish("", "--device", "demo", "--type", "t", `{"an":"argument"}`))
	one(publish("from\r\nstandard input\n", "--device", "demo", "--type", "t", "-"))
	one(publish(`{"device":"demo","type":"t","text":"line 1"}`+"\n\n"+`{"device":"demo","type":"t","payload":{"line":2}}`, "--ndjson"))

	want := []string{`{"an":"argument"}`, "from\nstandard input", "line 1", `{"line":2}`}
	for i, line := range printed(1 + len(want))[1:] {
		var e struct{ ID, Type, Data string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || i >= len(want) ||
			e.Data != want[i] || e.ID != stored[i] || e.Type != "t" {
			t.Errorf("line %d is %q (%v), want %q with %s", i, line, err, want[min(i, len(want)-1)], stored)
		}
	}
	ends(t, publish(`{"device":"demo","type":"resync","text":"x"}`+"\n", "--ndjson"), 3, "1 of 1 lines were refused")
	ends(t, publish("", "--device", "demo", "--type", "resync", "x"), 3, "resync")
	if code := device.Terminate(); code != 0 {
		t.Errorf("the listener ended with %d", code)
	}
}

// TestListenerKilled: a listener with a cursor file is killed again and again;
// each run continues where the one before was. It prints everything; what it
// had printed and not committed yet may come again.
func TestListenerKilled(t *testing.T) {
	t.Parallel()
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir())...)
	dir := t.TempDir()
	file, cursor := filepath.Join(dir, "printed"), filepath.Join(dir, "cursor")
	lines := func() []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(string(text), "\n")
	}
	start := func() *testkit.Listener {
		return program.StartListener(t, file, "--url", g.Device, "--device", "demo", "--cursor-file", cursor)
	}
	const kills, each = 5, 40
	device := start()
	testkit.Eventually(t, "the listener has its first position", func() bool {
		text, err := os.ReadFile(cursor)
		return err == nil && len(text) > 0
	})
	for round := range kills {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for n := range each {
				publish(t, g, "demo", fmt.Sprint(round*each+n))
			}
		}()
		before := len(lines())
		testkit.Eventually(t, "it prints", func() bool { return len(lines()) > before+each/4 })
		device.Kill9()
		<-sent // what comes while it is dead isn't lost either
		device = start()
	}
	last := fmt.Sprintf("\tt\t%d\n", kills*each-1)
	testkit.Eventually(t, "everything is printed", func() bool {
		all := lines()
		return len(all) > 1 && strings.HasSuffix(all[len(all)-2], last)
	})
	next, repeats := 0, 0
	for i, line := range lines() {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case line == "":
		case i == 0 && len(fields) == 3 && fields[1] == "resync" && fields[2] == "no-cursor":
		case len(fields) == 3 && fields[2] == fmt.Sprint(next):
			next++
		case len(fields) == 3 && fields[2] == fmt.Sprint(next-1):
			repeats++
		default:
			t.Fatalf("line %d is %q, expected event %d", i, line, next)
		}
	}
	if next != kills*each || repeats > kills {
		t.Errorf("%d events, %d of them twice, after %d kills", next, repeats, kills)
	}
}

// TestWrongUse: what can't work is refused at once, with an exit code and a
// sentence that says what to do.
func TestWrongUse(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	t.Run("plain defaults", func(t *testing.T) {
		t.Parallel()
		r := program.Run(t, "", "serve")
		ends(t, r, 2, ":8080", "auth", "--listen 127.0.0.1:8080", "--insecure-no-auth")
	})
	t.Run("all problems at once, no password", func(t *testing.T) {
		t.Parallel()
		r := program.Run(t, "", "check", "--window=soon", "--shards=0", "--log", "redis://u:hunter2@h:99999999", "--prefix", "a b")
		ends(t, r, 2, "window", "shards", ":8080", "redis://u:***@h", "prefix", "Nothing was started")
		if strings.Contains(r.Out+r.Err, "hunter2") {
			t.Error("the password is shown")
		}
	})
	t.Run("effective values, no password", func(t *testing.T) {
		t.Parallel()
		r := program.Run(t, "", "check", "--listen", "127.0.0.1:0", "--log", "redis://u:hunter2@h")
		ends(t, r, 0)
		if strings.Contains(r.Out+r.Err, "hunter2") || !strings.Contains(r.Out, "redis://u:***@h") || !strings.Contains(r.Out, "15m") {
			t.Errorf("it printed:\n%s%s", r.Out, r.Err)
		}
	})
	t.Run("version", func(t *testing.T) {
		t.Parallel()
		r := program.Run(t, "", "version")
		ends(t, r, 0)
		if !strings.HasPrefix(r.Out, "downlink ") || strings.Count(r.Out, "\n") != 1 {
			t.Errorf("it printed %q", r.Out)
		}
	})
	t.Run("used ports", func(t *testing.T) {
		t.Parallel()
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for _, flag := range []string{"--listen", "--backend-listen"} {
			r := program.Run(t, "", serveArgs("--log", "file:data", flag, other.Addr().String())...)
			ends(t, r, 1, other.Addr().String(), "in use", "choose another one")
		}
	})
	t.Run("unreachable gateway", func(t *testing.T) {
		t.Parallel()
		r := program.Run(t, "", "publish", "--backend", "http://127.0.0.1:1", "--device", "d", "--type", "t", "--retries", "0", "x")
		ends(t, r, 1, "127.0.0.1:1")
	})
}

// TestWrongLog: a gateway whose log isn't its own, or isn't as it believes,
// refuses to start.
func TestWrongLog(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	t.Run("used directory", func(t *testing.T) {
		t.Parallel()
		dir := "file:" + t.TempDir()
		program.StartGateway(t, args("--log", dir)...)
		ends(t, program.Run(t, "", serveArgs("--log", dir)...), 1, "another running gateway", "a directory of its own")
	})
	t.Run("shards of a directory", func(t *testing.T) {
		t.Parallel()
		dir := "file:" + t.TempDir()
		program.StartGateway(t, args("--log", dir, "--shards", "16")...).Kill9()
		ends(t, program.Run(t, "", serveArgs("--log", dir, "--shards", "32")...), 1, "16", "32")
	})
	t.Run("shards of a Redis", func(t *testing.T) {
		t.Parallel()
		redis := testkit.StartRedis(t, testkit.RedisUser("gateway", "hunter2", "~* +@all"))
		program.StartGateway(t, args("--log", redis.URL(), "--shards", "16")...)
		r := program.Run(t, "", serveArgs("--log", redis.URL(), "--shards", "32")...)
		ends(t, r, 1, "16", "32")
		if strings.Contains(r.Out+r.Err, "hunter2") {
			t.Error("the password is shown")
		}
	})
	t.Run("password of a Redis", func(t *testing.T) {
		t.Parallel()
		redis := testkit.StartRedis(t, testkit.RedisUser("gateway", "hunter2", "~* +@all"))
		url := strings.Replace(redis.URL(), "hunter2", "hunter3", 1)
		// It may be mended there, so the gateway tries on, and says why.
		g := program.LaunchGateway(t, args("--log", url)...)
		testkit.Eventually(t, "the reason is logged", func() bool { return strings.Contains(g.Log(), "WRONGPASS") })
		redis.Do("ACL", "SETUSER", "gateway", ">hunter3")
		g.AwaitReady()
		if strings.Contains(g.Log(), "hunter") {
			t.Error("the password is logged")
		}
	})
	t.Run("a Redis that evicts", func(t *testing.T) {
		t.Parallel()
		redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 100mb", "maxmemory-policy allkeys-lru"))
		ends(t, program.Run(t, "", serveArgs("--log", redis.URL())...), 1, "allkeys-lru", "noeviction", "--allow-eviction")
	})
}
