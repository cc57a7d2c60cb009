package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"downlink/internal/frame"
	"downlink/internal/governor"
	"downlink/internal/openapi/openapitest"
	"downlink/internal/problem"
	"downlink/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A gauge is a probe that says what a test tells it to.
type gauge struct {
	name  string
	value atomic.Uint64 // in thousandths
}

func (g *gauge) Name() string { return g.name }

func (g *gauge) Read(context.Context) (governor.Reading, error) {
	return governor.Reading{Value: float64(g.value.Load()) / 1000}, nil
}

// A rig is a governor and its handlers.
type rig struct {
	*Handlers
	governor *governor.Governor
	memory   *gauge
	percent  atomic.Int64 // the floor
	log      bytes.Buffer
	backend  http.Handler
	stay     error
	nobody   bool // there is no governor yet
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{memory: &gauge{name: "redis_memory"}}
	r.percent.Store(10)
	signals := []governor.Signal{
		{Probe: r.memory, Unit: "ratio", Help: "h", Period: 5 * time.Second, Timeout: 2 * time.Second, Fresh: 20 * time.Second, Threshold: 0.8, Wall: 0.92, Levers: []string{governor.Publish}},
		{Probe: &gauge{name: "tail_lag"}, Unit: "entries", Help: "h", Period: 2 * time.Second, Timeout: time.Second, Fresh: 10 * time.Second, Threshold: 1000, Levers: []string{governor.Admission}},
	}
	lever := func(name, unit string) governor.Lever {
		return governor.Lever{
			Name: name, Unit: unit, Floor: r.floor, Set: func(governor.Position) {},
			Use: func() (float64, bool) { return 0, false }, Maximum: func() float64 { return 100 },
		}
	}
	g, err := governor.New(governor.Options{
		Signals: signals, Settings: governor.Defaults(signals), Metrics: governor.NewMetrics(prometheus.NewRegistry()),
		Levers: []governor.Lever{lever(governor.Admission, "connections"), lever(governor.Publish, "entries/s")},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.governor = g
	r.Handlers = New(Options{
		Governor: func() *governor.Governor {
			if r.nobody {
				return nil
			}
			return g
		},
		Floor: &Floor{
			Get: r.floor,
			Refuse: func(part float64) string {
				if part < 0.01 || part > 1 {
					return "is out of here"
				}
				return ""
			},
			Set: func(part float64) error { r.percent.Store(int64(part * 100)); return nil },
		},
		Stay:   func(*http.Request) error { return r.stay },
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	admin := func(h http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if code := problem.Code(r.Header.Get("X-Test-Refuse")); code != "" {
				if code == problem.Unauthorized {
					w.Header().Set("WWW-Authenticate", "Bearer")
				}
				problem.Write(w, problem.New(code, "for a test"))
				return
			}
			h(w, r)
		})
	}
	r.backend = server.Backend([]server.Route{
		{Method: http.MethodGet, Path: Path, Handler: admin(r.Show)},
		{Method: http.MethodPatch, Path: Path, Handler: admin(r.Patch)},
		{Method: http.MethodGet, Path: EventsPath, Handler: admin(r.Follow)},
	}, func(h http.Handler) http.Handler { return h }, func() (bool, string) { return true, "" })
	return r
}

func (r *rig) floor() float64 { return float64(r.percent.Load()) / 100 }

// start runs the governor. For a bubble.
func (r *rig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.governor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A stream is a follower's end, as net/http would be. For a bubble.
type stream struct {
	header http.Header
	cancel func()
	ended  chan struct{}

	mu       sync.Mutex
	status   int
	text     bytes.Buffer
	stuck    bool // takes nothing
	deadline time.Time
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) { s.status = status }

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	stuck, deadline := s.stuck, s.deadline
	if !stuck {
		s.text.Write(b)
	}
	s.mu.Unlock()
	if !stuck {
		return len(b), nil
	}
	if deadline.IsZero() {
		select {} // the bubble is stuck, and the test fails
	}
	pass(time.Until(deadline))
	return 0, os.ErrDeadlineExceeded
}

func (s *stream) FlushError() error { return nil }

func (s *stream) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}

func (s *stream) limit() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}

// take returns what was written since the last call.
func (s *stream) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

func (s *stream) over() bool {
	synctest.Wait()
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// follow opens a stream.
func (r *rig) follow(t *testing.T, last string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{header: make(http.Header), cancel: cancel, ended: make(chan struct{})}
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, EventsPath, http.NoBody)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	go func() {
		defer close(s.ended)
		r.backend.ServeHTTP(s, req)
	}()
	t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	synctest.Wait()
	return s
}

// An event of a stream.
type event struct{ kind, id, data string }

func events(t *testing.T, text string) (all []event) {
	t.Helper()
	var p frame.Parser
	if err := p.Feed([]byte(text), func(e frame.Event) error {
		all = append(all, event{e.Type, e.ID, string(e.Data)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

func (r *rig) ask(t *testing.T, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.backend.ServeHTTP(w, req)
	return w
}

// TestEveryDocumentedAnswerIsReal: what is asked and answered is as the description
// says.
func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	doc := openapitest.Read(t)
	for _, c := range []struct {
		what, method, path, body string
		status                   int
		header                   []string
		nobody                   bool
	}{
		{what: "all", method: "GET", status: 200},
		{what: "nothing yet", method: "GET", status: 503, nobody: true},
		{what: "no token", method: "GET", status: 401, header: []string{"X-Test-Refuse", "unauthorized"}},
		{what: "no admin", method: "GET", status: 403, header: []string{"X-Test-Refuse", "forbidden"}},
		{what: "a change", method: "PATCH", body: `{"step":0.2,"floor":0.2,"signals":{"tail_lag":{"threshold":5}}}`, status: 200},
		{what: "all after it", method: "GET", status: 200},
		{what: "unknown", method: "PATCH", body: `{"stepp":0.2}`, status: 400},
		{what: "no JSON", method: "PATCH", body: `{`, status: 400},
		{what: "nothing yet", method: "PATCH", body: `{"step":0.2}`, status: 503, nobody: true},
		{what: "no token", method: "PATCH", body: `{}`, status: 401, header: []string{"X-Test-Refuse", "unauthorized"}},
		{what: "no admin", method: "PATCH", body: `{}`, status: 403, header: []string{"X-Test-Refuse", "forbidden"}},
		{what: "a page", method: "PATCH", body: `{}`, status: 403, header: []string{"Sec-Fetch-Site", "cross-site"}},
		{what: "large", method: "PATCH", body: strings.Repeat(" ", maxPatchBytes+1), status: 413},
		{what: "a form", method: "PATCH", body: `step=1`, status: 415, header: []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{what: "packed", method: "PATCH", body: `{}`, status: 415, header: []string{"Content-Encoding", "gzip"}},
		{what: "HEAD", method: "HEAD", path: EventsPath, status: 200},
		{what: "nothing yet", method: "GET", path: EventsPath, status: 503, nobody: true},
		{what: "no token", method: "GET", path: EventsPath, status: 401, header: []string{"X-Test-Refuse", "unauthorized"}},
		{what: "a page", method: "GET", path: EventsPath, status: 403, header: []string{"Sec-Fetch-Site", "same-site"}},
		{what: "a page", method: "GET", path: EventsPath, status: 403, header: []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		r.nobody = c.nobody
		path := cmp.Or(c.path, Path)
		a := r.ask(t, c.method, path, c.body, c.header...)
		if a.Code != c.status {
			t.Errorf("%s: %s %s: %d %s, want %d", c.what, c.method, path, a.Code, a.Body, c.status)
		}
		if c.method != "HEAD" {
			doc.Answer(t, c.what, path, c.method, a.Code, a.Header(), a.Body.Bytes())
		}
	}
	synctest.Test(t, func(t *testing.T) { // a stream
		s := newRig(t).follow(t, "")
		doc.Answer(t, "stream", EventsPath, "GET", 200, s.header, []byte(s.take()))
	})
	doc.WantAllSeen(t, Path, EventsPath)
}

func view(t *testing.T, text []byte) (v View) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return v
}

// TestPatch: what is answered is what counts, and what is wrong is told whole.
func TestPatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := view(t, r.ask(t, "GET", Path, "").Body.Bytes())
	if len(all.Levers) != 2 || len(all.Signals) != 2 || all.Settings.Step != 0.1 || all.Settings.Floor != 0.1 || all.Last != 0 || all.Patched != nil {
		t.Errorf("at first: %+v", all)
	}
	v := view(t, r.ask(t, "PATCH", Path, `{"step":0.2,"floor":0.25,"signals":{"tail_lag":{"threshold":5}}}`).Body.Bytes())
	want := []Changed{{"floor", 0.1, 0.25}, {"signals.tail_lag.threshold", 1000.0, 5.0}, {"step", 0.1, 0.2}}
	if diff := gocmp.Diff(want, v.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if s := r.governor.Settings(); s.Step != 0.2 || s.Signals["tail_lag"].Threshold != 5 || s.Floor != 0.1 || r.floor() != 0.25 || v.Levers[0].Floor != 0.25 {
		t.Errorf("counts: %+v, floor %v, and was answered: %+v", s, r.floor(), v)
	}
	if diff := gocmp.Diff(want[1:], v.Patched); diff != "" {
		t.Errorf("patched (-want +got):\n%s", diff)
	}
	whole, err := json.Marshal(v.Settings) // what GET shows, PATCH takes
	if err != nil {
		t.Fatal(err)
	}
	if v := view(t, r.ask(t, "PATCH", Path, string(whole)).Body.Bytes()); v.Changed != nil {
		t.Errorf("the settings as they are have changed something: %+v", v.Changed)
	}
	before := r.governor.Settings()
	for body, want := range map[string][]string{
		`{"floor":7,"step":3,"signals":{"none":{"threshold":1}}}`: {"floor is out of here", "step can't be 3", "signals.none is no signal"},
		`{"floor":0.5,"step":3}`:                                  {"step can't be 3"},
		`{"floor":0.005,"step":0.3}`:                              {"floor is out of here"},
		`{"floor":7,"step":0.3}`:                                  {"floor is out of here"},
		`{"stepp":1,"Floor":1,"good":null}`:                       {"stepp is no setting", "Floor is no setting", "good must be a number"},
		`{"step":0.3,"step":0.4}`:                                 {"step stands there twice"},
		`{"signals":{"tail_lag":{"threshold":1e999}}}`:            {"signals.tail_lag.threshold must be a number"},
		`{"signals":{"tail_lag":{"threshold":-1}}}`:               {"signals.tail_lag.threshold can't be -1"},
		`{"signals":{"tail_lag":{"levers":["floor"]}}}`:           {"signals.tail_lag.levers can't name"},
		`{"signals":{"tail_lag":{"threshold":0,"x":1}}}`:          {"signals.tail_lag.x is no setting"},
		`{"step":NaN}`:          {"isn't one JSON object"},
		`[{"step":0.3}]`:        {"aren't one JSON object"},
		`{"step":0.3} {"on":1}`: {"isn't one JSON object"},
		`{"period":30}`:         {"period must be a duration"},
	} {
		a := r.ask(t, "PATCH", Path, body)
		var p problem.Document
		if err := json.Unmarshal(a.Body.Bytes(), &p); err != nil || a.Code != 400 || p.Hint == "" {
			t.Errorf("%s: %d %s", body, a.Code, a.Body)
		}
		for _, w := range want {
			if !strings.Contains(p.Detail, w) {
				t.Errorf("%s: %q doesn't say %q", body, p.Detail, w)
			}
		}
		if diff := gocmp.Diff(before, r.governor.Settings()); diff != "" || r.floor() != 0.25 {
			t.Errorf("%s has changed something: floor %v, %s", body, r.floor(), diff)
		}
	}
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"n%d":1,`, i)
	}
	if a := r.ask(t, "PATCH", Path, "{"+many.String()+`"x":1}`); a.Code != 400 || a.Body.Len() > 10_000 || !strings.Contains(a.Body.String(), "n99 is no setting") || !strings.Contains(a.Body.String(), "and 4901 more") {
		t.Errorf("thousands of mistakes: %d with %d bytes: %.200s", a.Code, a.Body.Len(), a.Body)
	}
	if log := r.log.String(); strings.Count(log, "setting=floor") != 1 || !strings.Contains(log, "now=0.25") {
		t.Errorf("the log: %s", log)
	}
}

// TestPatchesTogether: each is answered with what it has changed itself.
func TestPatchesTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			want := 0.5 + float64(n+1)/1000
			v := view(t, r.ask(t, "PATCH", Path, fmt.Sprintf(`{"fast_step":%v}`, want)).Body.Bytes())
			if v.Settings.FastStep != want || len(v.Changed) != 1 || v.Changed[0].After != want {
				t.Errorf("%v: %v, %+v", want, v.Settings.FastStep, v.Changed)
			}
		})
	}
	all.Wait()
}

// TestFollow: first the state, then each change once and in order, wherever a
// follower begins; what isn't remembered any more is told.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if a := r.ask(t, "PATCH", Path, `{"fast_period":"1s","calm":"1s","rise_step":0.001,"rise_period":"1s","hesitance":1}`); a.Code != 200 {
			t.Fatal(a.Body)
		}
		r.start(t)
		first := r.follow(t, "")
		pass(time.Minute)
		got := events(t, first.take())
		if len(got) != 1 || got[0].kind != "state" || got[0].id != "" || view(t, []byte(got[0].data)).Settings.RiseStep != 0.001 {
			t.Fatalf("while nothing changes: %v", got)
		}
		r.memory.value.Store(950)
		pass(3 * time.Minute)
		got = events(t, first.take())
		n := uint64(len(got))
		if n < 3 {
			t.Fatalf("at the wall: %v, %+v", got, r.governor.State().Levers)
		}
		for i, e := range got {
			var c governor.Change
			if err := json.Unmarshal([]byte(e.data), &c); err != nil || e.kind != "change" || c.Number != uint64(i)+1 || !strings.HasPrefix(e.id, fmt.Sprint(c.Number)+"-") || c.Signal != "redis_memory" {
				t.Errorf("%v, want change %d", e, i+1)
			}
		}
		if late := events(t, r.follow(t, "").take()); len(late) != len(got)+1 || late[1] != got[0] {
			t.Errorf("who comes later gets %v", late)
		}
		resumed := r.follow(t, got[0].id)
		if again := events(t, resumed.take()); len(again) != len(got) || again[0].kind != "state" || !slices.Equal(again[1:], got[1:]) {
			t.Errorf("who resumes after the first gets %v", again)
		}
		resumed.cancel()
		for _, id := range []string{"57-ANOTHER", "57", "x", "18446744073709551616-" + r.run, "4711-" + r.run} {
			if other := events(t, r.follow(t, id).take()); len(other) != len(got)+2 || other[1].kind != "gap" || !strings.Contains(other[1].data, `"next":1,"restarted":true`) {
				t.Errorf("who comes with %q gets %v", id, other)
			}
		}
		r.memory.value.Store(100) // many a rise
		pass(45 * time.Minute)
		if more := events(t, first.take()); len(more) < 150 || !strings.HasPrefix(more[len(more)-1].id, fmt.Sprint(n+uint64(len(more)))+"-") {
			t.Errorf("of the rises: %d events, the last %v", len(more), more[len(more)-1])
		}
		if late := events(t, r.follow(t, "").take()); late[1].kind != "change" {
			t.Errorf("who comes for the first time misses nothing, and gets %v", late[:2])
		}
		gone := events(t, r.follow(t, got[n-1].id).take())
		var gap Gap
		if err := json.Unmarshal([]byte(gone[1].data), &gap); err != nil || gone[1].kind != "gap" || gap.After != n || gap.Restarted ||
			!strings.HasPrefix(gone[2].id, fmt.Sprint(gap.Next)+"-") || gap.Next <= n+1 {
			t.Errorf("after a long absence: %v", gone[:3])
		}
		r.memory.value.Store(950)
		pass(3 * time.Minute)
		first.take()
		v := view(t, r.ask(t, "PATCH", Path, `{"floor":0.75}`).Body.Bytes())
		if got := events(t, first.take()); v.Levers[1].Ratio != 0.75 || len(got) != 1 || !strings.Contains(got[0].data, `"kind":"adjusted"`) {
			t.Errorf("a higher floor: %+v, and %v", v.Levers[1], got)
		}
	})
}

// TestStreamsEnd: with their follower, with the process, after an hour, and when
// nothing is taken; quiet ones are kept alive. Each gives its place back.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		gone, slow, old := r.follow(t, ""), r.follow(t, ""), r.follow(t, "")
		if r.Following() != 3 {
			t.Fatalf("%d follow", r.Following())
		}
		old.take()
		pass(keepAlive)
		if text := old.take(); !strings.HasPrefix(text, ": ") || !strings.HasSuffix(text, "\n\n") || !old.limit().IsZero() {
			t.Errorf("%q after %v, and then the time limit %v", text, keepAlive, old.limit())
		}
		gone.cancel()
		if !gone.over() || r.Following() != 2 {
			t.Errorf("%d follow when one has gone", r.Following())
		}
		slow.mu.Lock()
		slow.stuck = true
		slow.mu.Unlock()
		pass(keepAlive + writeLimit - time.Second)
		if slow.over() {
			t.Error("a slow follower was cut too early")
		}
		if pass(2 * time.Second); !slow.over() || r.Following() != 1 {
			t.Error("one that takes nothing isn't cut")
		}
		if pass(longest); !old.over() {
			t.Error("a stream goes on after an hour")
		}
		last := r.follow(t, "")
		if r.Close(); !last.over() || r.Following() != 0 {
			t.Error("a stream goes on after the end")
		}
		if r.Close(); r.follow(t, "").status != 503 {
			t.Error("a stream begins after the end")
		}
	})
}

// TestFollowersAreBounded: whatever comes, so many follow, and the others are told
// when to come back.
func TestFollowersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var in []*stream
		refused := 0
		for range 1000 {
			s := r.follow(t, "")
			if s.over() {
				if refused++; s.status != 503 || s.header.Get("Retry-After") == "" || !strings.Contains(s.take(), "too-many-followers") {
					t.Fatalf("%d %v", s.status, s.header)
				}
				continue
			}
			in = append(in, s)
		}
		if len(in) != maxFollowers || refused != 1000-maxFollowers {
			t.Errorf("%d are in, %d were refused", len(in), refused)
		}
		in[0].cancel()
		if in[0].over(); r.follow(t, "").over() {
			t.Error("a place that was given back isn't given again")
		}
		in[1].cancel()
		synctest.Wait()
		r.stay = problem.New(problem.BackendFull, "for a test")
		if s := r.follow(t, ""); s.status != 503 || !strings.Contains(s.take(), "back-end-full") || r.Following() != maxFollowers-1 {
			t.Errorf("who may not stay: %d, and %d follow", s.status, r.Following())
		}
	})
}
