package players

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A stage play of game and gateway in one: what they answer is the test's to say.
// The real ones are in the tests of package run.
type theatre struct {
	*httptest.Server
	wire *wire

	mu      sync.Mutex
	joins   int                 // so many are sent to the waiting room first
	version int64               // of the board
	solved  map[string]int      // by player
	asked   map[string]int      // GET /me, by player
	cursors map[string][]string // Last-Event-ID of each stream of a player
	streams map[string]chan string
	stream  func(player string, turn int, w http.ResponseWriter) bool // false: the stream ends
}

func stageOf(t *testing.T, stream func(player string, turn int, w http.ResponseWriter) bool) *theatre {
	t.Helper()
	th := &theatre{
		solved: map[string]int{}, asked: map[string]int{}, cursors: map[string][]string{}, streams: map[string]chan string{}, stream: stream,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /join", th.join)
	mux.HandleFunc("POST /solve", th.solve)
	mux.HandleFunc("GET /me", th.me)
	mux.HandleFunc("GET /leaderboard", func(w http.ResponseWriter, _ *http.Request) {
		th.mu.Lock()
		defer th.mu.Unlock()
		fmt.Fprintf(w, `{"version":%d,"at":0}`, th.version)
	})
	mux.HandleFunc("GET /events", th.events)
	th.wire = newWire()
	th.Server = &httptest.Server{Listener: th.wire, Config: &http.Server{Handler: mux}}
	th.Start()
	t.Cleanup(th.Close)
	return th
}

// A wire is a network for a bubble, with one server.
type wire struct {
	coming chan net.Conn
	cut    chan struct{}
	once   sync.Once
}

func newWire() *wire { return &wire{coming: make(chan net.Conn), cut: make(chan struct{})} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case w.coming <- there:
		return here, nil
	case <-w.cut:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.coming:
		return c, nil
	case <-w.cut:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.cut) })
	return nil
}

func (*wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// on is a map with the cross at the first place.
const on = `"side":2,"map":"X..."`

func (th *theatre) join(w http.ResponseWriter, r *http.Request) {
	var body struct{ Name string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.joins > 0 {
		th.joins--
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":"waiting-room"}`, http.StatusServiceUnavailable)
		return
	}
	player := strings.ReplaceAll(body.Name, " ", "-")
	th.streams[player] = make(chan string, 100)
	fmt.Fprintf(w, `{"player":%q,"token":%q,"events":"%s/events","challenge":{"challenge":1,%s}}`, player, player, th.URL, on)
}

func (th *theatre) who(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func (th *theatre) solve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Challenge int
		Answer    string
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	th.mu.Lock()
	defer th.mu.Unlock()
	player := th.who(r)
	if body.Answer != "A1" || body.Challenge != th.solved[player]+1 {
		http.Error(w, `{"error":"other-challenge"}`, http.StatusConflict)
		return
	}
	th.solved[player]++
	th.version++
	if body.Challenge != 2 { // the second drop is lost
		th.streams[player] <- fmt.Sprintf("id: %d-0\nevent: drop\ndata: {\"challenge\":%d}\n\n", body.Challenge, body.Challenge)
	}
	th.streams[player] <- fmt.Sprintf("id: %d-1\nevent: assignment\ndata: {\"challenge\":%d,%s}\n\n", body.Challenge, body.Challenge+1, on)
	fmt.Fprint(w, `{"right":true}`)
}

func (th *theatre) me(w http.ResponseWriter, r *http.Request) {
	th.mu.Lock()
	defer th.mu.Unlock()
	player := th.who(r)
	th.asked[player]++
	fmt.Fprintf(w, `{"solved":%d,"challenge":{"challenge":%d,%s}}`, th.solved[player], th.solved[player]+1, on)
}

func (th *theatre) events(w http.ResponseWriter, r *http.Request) {
	player := th.who(r)
	th.mu.Lock()
	turn := len(th.cursors[player])
	th.cursors[player] = append(th.cursors[player], r.Header.Get("Last-Event-ID"))
	news := th.streams[player]
	th.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	if !th.stream(player, turn, w) {
		return
	}
	w.(http.Flusher).Flush()
	boards := time.NewTicker(200 * time.Millisecond)
	defer boards.Stop()
	for {
		text := ""
		select {
		case <-r.Context().Done():
			return
		case text = <-news:
		case now := <-boards.C:
			th.mu.Lock()
			text = fmt.Sprintf("id: 9-%d\nevent: board\ndata: {\"version\":%d,\"at\":%d,\"since\":%d}\n\n", th.version, th.version, now.UnixMilli(), now.UnixMilli())
			th.mu.Unlock()
		}
		fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
	}
}

// TestPlayers: who is let in plays by his stream alone, a drop that didn't come is
// missed, and who has no stream is throttled, asks how things are, and plays on.
func TestPlayers(t *testing.T) { synctest.Test(t, players) }

func players(t *testing.T) {
	th := stageOf(t, func(player string, turn int, w http.ResponseWriter) bool {
		switch {
		case player == "player-2":
			w.Header().Set("Downlink-Refused", "max_connections")
			fmt.Fprint(w, "retry: 300\n: full\n\n")
			return false
		case turn == 0: // a stream that breaks at once
			fmt.Fprint(w, "retry: 100\n\nid: 7-7\n\n")
			return false
		}
		return true
	})
	th.joins = 1
	var seconds []Second
	report, err := Run(t.Context(), Options{
		Load: Load{Seed: 1, Players: 2, Last: 8 * time.Second, Think: time.Second, Look: time.Second},
		Game: th.URL, dial: th.wire.dial, Each: func(s Second) { seconds = append(seconds, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	last := report.Last
	if report.Joined != 2 || last.Throttled != 1 || last.Streams != 1 || last.Frozen > 1 {
		t.Errorf("%+v", last)
	}
	if !slices.ContainsFunc(seconds, func(s Second) bool { return s.Waiting == 1 }) || report.Longest < time.Second {
		t.Errorf("nobody waited: %v, %+v", report.Longest, seconds)
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.solved["player-1"] < 3 || th.solved["player-2"] < 2 {
		t.Errorf("solved: %v", th.solved)
	}
	if report.Missing != 1 {
		t.Errorf("%d drops are missing, want the second", report.Missing)
	}
	if c := th.cursors["player-1"]; len(c) != 2 || c[0] != "" || c[1] != "7-7" {
		t.Errorf("streams of the first player began after %q", c)
	}
	if n := len(th.cursors["player-2"]); n < 5 || last.Refused < 5 {
		t.Errorf("the second player came back %d times, and says %d", n, last.Refused)
	}
	if th.asked["player-2"] < 2 || report.Boards.Quantile(0.5) < 0 || report.Boards.Quantile(0.95) > 1000 || report.Waits.Quantile(0.5) < 0 {
		t.Errorf("asked %v times; boards %v, waits %v", th.asked, report.Boards, report.Waits)
	}
}

// TestFreeze: a stream on which nothing comes is a freeze as soon as the board has
// moved without it, and only one however long it lasts.
func TestFreeze(t *testing.T) { synctest.Test(t, freezes) }

func freezes(t *testing.T) {
	quiet := make(chan struct{})
	th := stageOf(t, func(_ string, _ int, w http.ResponseWriter) bool {
		w.(http.Flusher).Flush()
		<-quiet
		return false
	})
	stop := time.AfterFunc(9*time.Second, func() { close(quiet) })
	defer stop.Stop()
	moving := make(chan struct{})
	go func() {
		for {
			select {
			case <-moving:
				return
			case <-time.After(100 * time.Millisecond):
				th.mu.Lock()
				th.version++
				th.mu.Unlock()
			}
		}
	}()
	defer close(moving)
	report, err := Run(t.Context(), Options{
		Load: Load{Seed: 1, Players: 3, Last: 9 * time.Second, Think: time.Hour, Look: time.Hour}, Game: th.URL, dial: th.wire.dial, Count: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Last.Freezes != 2 || report.Last.Frozen != 2 {
		t.Errorf("%+v", report.Last)
	}
}

func TestMoves(t *testing.T) {
	var m moves
	start := time.Now()
	if m.latest() != 0 || m.before(start) != 0 {
		t.Error("a board that nobody has seen has moved")
	}
	for i := range 60 {
		m.note(start.Add(time.Duration(i)*time.Second), int64(i+1))
	}
	end := start.Add(59 * time.Second)
	if got := m.before(end.Add(-freeze)); got != 55 {
		t.Errorf("five seconds ago the board was at %d, want 55", got)
	}
	if m.latest() != 60 || len(m.seen) > 12 {
		t.Errorf("the last is %d, and %d are kept", m.latest(), len(m.seen))
	}
}

func TestQuantile(t *testing.T) {
	c := Counts{}
	if c.Quantile(0.95) != -1 {
		t.Error("nothing was measured")
	}
	for ms := 1; ms <= 100; ms++ {
		c[ms]++
	}
	c.Add(Counts{70_000: 0, longest: 1})
	for q, want := range map[float64]int{0.5: 51, 0.95: 96, 1: longest} {
		if got := c.Quantile(q); got != want {
			t.Errorf("%v: %d, want %d", q, got, want)
		}
	}
	var k clock
	k.add(3 * time.Millisecond)
	if k.lately() != 3 || k.lately() != -1 || k.counts()[3] != 1 {
		t.Error("what was counted lately is counted once")
	}
}

func TestSecondsAdd(t *testing.T) {
	a, b := Second{At: 1, Playing: 2, Freezes: 3, BoardP95: 4, Version: 9}, Second{At: 2, Playing: 5, Freezes: 7, BoardP95: 3, Version: 8}
	if got, want := a.Plus(b), (Second{At: 2, Playing: 7, Freezes: 10, BoardP95: 4, Version: 9}); got != want {
		t.Errorf("%+v", got)
	}
}

func TestMember(t *testing.T) {
	for text, want := range map[string]int64{
		`{"version":12,"at":3}`: 12, `{"version":7}`: 7, `{"version":"x"}`: 0, `{}`: 0, `{"version":99999999999999999999}`: 0, `{"version":5`: 0,
	} {
		if got := member(text, `"version":`); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestLoadCheck(t *testing.T) {
	good := Load{Players: 1, Arrive: time.Second, Last: time.Minute, Think: time.Second, Look: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Load){
		"players": func(l *Load) { l.Players = 0 },
		"arrive":  func(l *Load) { l.Arrive = time.Hour },
		"think":   func(l *Load) { l.Think = 0 },
		"look":    func(l *Load) { l.Look = 0 },
	} {
		l := good
		spoil(&l)
		if err := l.Check(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Run(t.Context(), Options{Load: l}); err == nil {
			t.Errorf("%s: it was played all the same", name)
		}
	}
	if _, err := Run(t.Context(), Options{Load: good, First: 1}); err == nil {
		t.Error("a player who isn't there")
	}
}
