package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

// program is Downlink as it is used, built once.
//
//nolint:gochecknoglobals // TestMain has no other way to hand it to tests
var program testkit.Program

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hunt")
	if err == nil {
		program, err = testkit.Build(dir)
	}
	if err != nil {
		os.RemoveAll(dir) //nolint:errcheck // there is a greater trouble
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir) //nolint:errcheck // a directory of the system's
		os.Exit(code)
	}))
}

// hunt runs a command line until the test ends it, and returns the game's URL.
func hunt(t *testing.T, args ...string) (url string) {
	t.Helper()
	var commands cli
	parser, err := kong.New(&commands)
	if err == nil {
		_, err = parser.Parse(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := commands.Serve.run(ctx, out, slog.New(slog.DiscardHandler))
		_ = out.CloseWithError(io.EOF) // whoever waits for its first line
		ended <- err
	}()
	t.Cleanup(func() {
		end()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the game ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the game doesn't end")
		}
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "game: ")
	if err != nil || !ok {
		t.Fatalf("the game said %q, %v", line, err)
	}
	return url
}

func writeSecret(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("a secret of at least thirty-two bytes, for tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestServe: the command line as it is in the README, with the governor of a
// gateway, and one that is told how many play.
func TestServe(t *testing.T) {
	t.Parallel()
	redis, secret := testkit.StartRedis(t), writeSecret(t)
	gateway := program.StartGateway(t, "--log", redis.URL(), "--auth", "jwt", "--jwt-hmac-secret-file", secret)
	for name, governor := range map[string][]string{
		"nobody":    nil,
		"a gateway": {"--governor", gateway.Backend},
		"nowhere":   {"--governor", "http://" + testkit.LastingAddr(t), "--tell-governor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--redis", redis.URL(), "--backend", gateway.Backend, "--events", gateway.Device, "--secret-file", secret}, governor...)
			url := hunt(t, args...)
			if status, said := testkit.Post(t, url+"/join", "application/json", `{"name":"Ada"}`); status != 200 || !strings.Contains(said, gateway.Device+"/events") {
				t.Errorf("joining: %d %s", status, said)
			}
			if status, said := testkit.Get(t, url+"/metrics"); status != 200 || !strings.Contains(said, `hunt_joins_total{result="admitted"} 1`) {
				t.Errorf("the metrics: %d %.300s", status, said)
			}
			if status, said := testkit.Get(t, url+"/"); status != 200 || !strings.Contains(said, "The hunt") {
				t.Errorf("the page: %d %.300s", status, said)
			}
		})
	}
}

// TestGovernor: Redis fills up, the gateway's governor lowers admission, and who
// comes to the hunt is asked to wait, by which signal; and is let in when it is over.
func TestGovernor(t *testing.T) {
	t.Parallel()
	redis, secret := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 40mb", "maxmemory-policy noeviction")), writeSecret(t)
	gateway := program.StartGateway(t, "--log", redis.URL(), "--auth", "jwt", "--jwt-hmac-secret-file", secret, "--max-connections", "10", "--governor-reserve", "0")
	set := func(settings ...string) {
		t.Helper()
		if r := program.Run(t, "", append([]string{"governor", "set", "--backend", gateway.Backend}, settings...)...); r.Code != 0 {
			t.Fatalf("%v: %+v", settings, r)
		}
	}
	set("fast_step=0.8", "signals.redis_memory.levers=publish,admission")
	url := hunt(t, "--redis", redis.URL(), "--backend", gateway.Backend, "--events", gateway.Device, "--secret-file", secret,
		"--governor", gateway.Backend, "--refresh", "100ms")
	join := func() (int, string) { return testkit.Post(t, url+"/join", "application/json", `{"name":"Ada"}`) }
	if status, said := join(); status != 200 {
		t.Fatalf("at first: %d %s", status, said)
	}
	redis.Do("SETRANGE", "ballast", "36000000", "x")
	testkit.Eventually(t, "who comes has to wait", func() bool {
		status, said := join()
		return status == 503 && strings.Contains(said, `"error":"waiting-room"`) && strings.Contains(said, "redis_memory")
	})
	redis.Do("DEL", "ballast")
	set("on=false") // rather than to wait until it rises
	testkit.Eventually(t, "who comes is let in", func() bool { status, _ := join(); return status == 200 })
}

// TestWrongCommandLines: what can't work ends at once, and says why.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	good := serveCmd{
		Listen: "127.0.0.1:0", Redis: redis.URL(), Backend: []string{"http://127.0.0.1:1"}, Events: []string{"http://127.0.0.1:1"},
		SecretFile: writeSecret(t), Name: "hunt", Side: 16, Top: 20, BoardEvery: time.Second, Outbox: 10,
		Active: time.Minute, Patience: time.Second, TokenLife: time.Hour,
	}
	for want, change := range map[string]func(*serveCmd){
		"no such file": func(c *serveCmd) { c.SecretFile = "nowhere" },
		"side":         func(c *serveCmd) { c.Side = 1 },
		"Options.URL":  func(c *serveCmd) { c.Governor = "not a URL" },
		"Redis":        func(c *serveCmd) { c.Redis = "redis://" + testkit.LastingAddr(t) },
		"listen":       func(c *serveCmd) { c.Listen = "nowhere:x" },
	} {
		c := good
		change(&c)
		if err := c.run(t.Context(), io.Discard, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
