package game

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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

const secret = "a secret of at least thirty-two bytes, for tests"

// A rig is a hunt with its Redis and its gateway.
type rig struct {
	t       *testing.T
	redis   *testkit.Redis
	gateway *testkit.Gateway
	args    []string // of the gateway
	address string   // of the game; empty: any
	opts    Options
	hasty   bool // the game waits for Redis as long as it does in life, and not as a busy machine may need
	*running
}

// A running is one process of the game, as far as that goes in a test.
type running struct {
	url string
	log *lockedBuffer
	end func()
}

// start starts a hunt at an address (empty: any); args are further ones of the gateway.
func start(t *testing.T, redis *testkit.Redis, change func(*Options), address string, args ...string) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--log", redis.URL(), "--shards", "4", "--auth", "jwt", "--jwt-hmac-secret-file", file, "--governor", "off", "--publish-timeout", "1m"}, args...)
	r := &rig{t: t, redis: redis, gateway: program.StartGateway(t, args...), args: args, address: address}
	r.opts = Options{
		Redis: redis.URL(), Name: "test", Seed: 1, Side: 16, Top: 20, BoardEvery: 20 * time.Millisecond,
		OutboxMax: 1000, ActiveFor: time.Minute, Patience: time.Second, Backends: []string{r.gateway.Backend}, Events: []string{r.gateway.Device},
		Secret: []byte(secret), TokenLife: time.Hour,
	}
	if change != nil {
		change(&r.opts)
	}
	r.run()
	return r
}

// run starts the game, again if it was ended.
func (r *rig) run() {
	r.t.Helper()
	r.running = &running{log: &lockedBuffer{}}
	reg := prometheus.NewRegistry()
	opts := r.opts
	opts.Registerer, opts.Logger = reg, slog.New(slog.NewTextHandler(r.log, nil))
	g, err := New(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	if !r.hasty {
		g.store.limit = time.Minute
	}
	mux := http.NewServeMux()
	mux.Handle("/", g.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	server := httptest.NewUnstartedServer(mux)
	if r.address != "" {
		server.Listener.Close()
		if server.Listener, err = net.Listen("tcp", r.address); err != nil {
			r.t.Fatal(err)
		}
	}
	server.Start()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { g.Run(ctx); close(ended) }()
	r.url = server.URL
	var once bool
	r.end = func() {
		if once {
			return
		}
		once = true
		server.Close()
		stop()
		<-ended
		g.Close()
	}
	r.t.Cleanup(r.end)
}

// restartGateway starts a gateway anew, which has to have lasting addresses.
func (r *rig) restartGateway() {
	r.t.Helper()
	r.gateway = program.StartGateway(r.t, r.args...)
}

// rules are the game's.
func (r *rig) rules() rules { return rules{r.opts.Seed, r.opts.Side} }

// switched is a governor that holds everybody back, or nobody.
type switched struct{ on atomic.Bool }

func (s *switched) set(on bool) { s.on.Store(on) }

func (s *switched) allowance() Allowance {
	if s.on.Load() {
		return Allowance{Ratio: 0.5, Signal: "redis_memory"}
	}
	return Allowance{Ratio: 1}
}

// ask sends a request as JSON, and reads the answer into into, if there is one.
func (r *rig) ask(method, path, token string, body, into any) (status int, header http.Header) {
	r.t.Helper()
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, bytes.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(said, into); err != nil {
			r.t.Fatalf("%s %s: %d %q: %v", method, path, resp.StatusCode, said, err)
		}
	}
	return resp.StatusCode, resp.Header
}

// join lets somebody join who must be let in.
func (r *rig) join(name string) Ticket {
	r.t.Helper()
	var ticket Ticket
	if status, _ := r.ask("POST", "/join", "", map[string]string{"name": name}, &ticket); status != 200 {
		r.t.Fatalf("%s can't join: %d", name, status)
	}
	return ticket
}

// solve sends the right answer to a challenge.
func (r *rig) solve(token string, c Challenge, into any) (status int, header http.Header) {
	r.t.Helper()
	return r.ask("POST", "/solve", token, map[string]any{"challenge": c.Number, "answer": Answer(c.Map, c.Side)}, into)
}

// solveRight is solve, which must count.
func (r *rig) solveRight(token string, c Challenge) Solved {
	r.t.Helper()
	var s Solved
	if status, _ := r.solve(token, c, &s); status != 200 || !s.Right {
		r.t.Fatalf("solving %d: %d %+v", c.Number, status, s)
	}
	return s
}

func (r *rig) me(token string) Me {
	r.t.Helper()
	var me Me
	if status, _ := r.ask("GET", "/me", token, nil, &me); status != 200 {
		r.t.Fatalf("GET /me: %d", status)
	}
	return me
}

// stream opens a player's stream.
func (r *rig) stream(ticket Ticket) *testkit.Stream {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, ticket.Events, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ticket.Token)
	s := testkit.Send(r.t, &http.Transport{DisableKeepAlives: true}, req)
	s.Until("event: resync") // it is live
	return s
}

// next is the next event of a type.
func next[T any](t *testing.T, s *testkit.Stream, kind string) (event T) {
	t.Helper()
	s.Until("event: " + kind)
	data := strings.TrimPrefix(strings.TrimSpace(s.Until("data: ")), "data: ")
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		t.Fatalf("%s: %q: %v", kind, data, err)
	}
	return event
}

// metric is a value of the game's metrics.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	_, text := testkit.Get(r.t, r.url+"/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				r.t.Fatalf("%s: %v", name, err)
			}
			return number
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}

// A lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
