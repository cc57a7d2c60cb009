package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"downlink/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a governor that says what a test tells it to.
type said struct {
	*httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
	asked  atomic.Int64
}

func governor(t *testing.T) *said {
	t.Helper()
	s := new(said)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *said) say(text string) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	s.answer.Store(&h)
}

func (s *said) do(h http.HandlerFunc) { s.answer.Store(&h) }

// ask makes a client that is as patient as a busy machine needs, unless its options
// say otherwise.
func ask(t *testing.T, o throttle.Options) *throttle.Client {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	c, err := throttle.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const half = `{"on":true,"levers":[{"name":"publish","ratio":0.9,"unit":"entries/s","verdict":"good"},
	{"name":"admission","ratio":0.5,"maximum":1000,"unit":"players","signal":"redis_memory","why":"redis_memory is 90 %","verdict":"over"}]}`

func TestTheLeverIsFound(t *testing.T) {
	t.Parallel()
	g := governor(t)
	g.say(half)
	c := ask(t, throttle.Options{URL: g.URL + "/", Refresh: time.Hour})
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := c.State()
	if c.Ratio() != 0.5 || s.Maximum != 1000 || s.Unit != "players" || s.Signal != "redis_memory" || s.Why == "" || s.Unsure || s.Err != nil || s.Stale || s.Answered.IsZero() {
		t.Errorf("%+v", s)
	}
	other := ask(t, throttle.Options{URL: g.URL, Lever: "publish", Refresh: time.Hour})
	if err := other.Refresh(t.Context()); err != nil || other.Ratio() != 0.9 || other.State().Signal != "" {
		t.Errorf("%v, %+v", err, other.State())
	}
}

// What can't be true, or isn't the answer of a governor, changes nothing.
func TestTheLastWordStands(t *testing.T) {
	t.Parallel()
	g := governor(t)
	g.say(half)
	c := ask(t, throttle.Options{URL: g.URL, Refresh: time.Hour})
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	hasty := ask(t, throttle.Options{URL: g.URL, Refresh: time.Hour, Timeout: 200 * time.Millisecond})
	until(t, func() bool { return hasty.Refresh(t.Context()) == nil })
	hold := make(chan struct{})
	defer close(hold)
	for what, h := range map[string]http.HandlerFunc{
		"an error":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"nothing":    func(http.ResponseWriter, *http.Request) {},
		"silence":    func(_ http.ResponseWriter, r *http.Request) { wait(r, hold) },
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, half[:40])
			w.(http.Flusher).Flush()
			wait(r, hold)
		},
		"a cut":              func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a page":             text("<html>welcome</html>"),
		"no levers":          text(`{}`),
		"another lever":      text(`{"levers":[{"name":"publish","ratio":0.3}]}`),
		"no ratio":           text(`{"levers":[{"name":"admission"}]}`),
		"zero":               text(`{"levers":[{"name":"admission","ratio":0}]}`),
		"too much":           text(`{"levers":[{"name":"admission","ratio":1.01}]}`),
		"less than nothing":  text(`{"levers":[{"name":"admission","ratio":-1}]}`),
		"a text for a ratio": text(`{"levers":[{"name":"admission","ratio":"0.4"}]}`),
		"no end":             endless,
	} {
		g.do(h)
		c := c
		if what == "silence" || what == "half an answer" {
			c = hasty
		}
		if err := c.Refresh(t.Context()); err == nil {
			t.Errorf("%s is taken for an answer: %+v", what, c.State())
		}
		if s := c.State(); c.Ratio() != 0.5 || s.Why == "" || s.Err == nil || s.Age == 0 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	g.say(`{"levers":[` + strings.Repeat(`{"name":"\u0007`+strings.Repeat("x", 1000)+`"},`, 99) + `{"name":"publish"}]}`)
	if err := c.Refresh(t.Context()); err == nil || len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\a\n") {
		t.Errorf("%v", err)
	}
	g.say(half)
	if err := c.Refresh(t.Context()); err != nil || c.State().Err != nil {
		t.Errorf("it answers again: %v, %+v", err, c.State())
	}
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 64<<10)); err != nil {
			return
		}
	}
}

func wait(r *http.Request, until chan struct{}) {
	select {
	case <-r.Context().Done():
	case <-until:
	}
}

// line is a way to a governor, for a bubble.
type line func() (string, error)

func (l line) RoundTrip(*http.Request) (*http.Response, error) {
	said, err := l()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(said))}, nil
}

// A governor that was there and is away: the caller goes on with the last ratio,
// knows how old it is, and is told once.
func TestAwayIsSaidOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var says atomic.Pointer[string]
		say := func(text string) { says.Store(&text) }
		say(half)
		var log lines
		way := line(func() (string, error) {
			if said := *says.Load(); said != "" {
				return said, nil
			}
			return "", errors.New("it is away")
		})
		c := ask(t, throttle.Options{
			URL: "http://governor", Refresh: 10 * time.Second, Timeout: 2 * time.Second,
			HTTPClient: &http.Client{Transport: way}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		pass(time.Second)
		if c.Ratio() != 0.5 {
			t.Errorf("%+v", c.State())
		}
		say("")
		pass(12 * time.Second)
		if s := c.State(); s.Ratio != 0.5 || s.Err == nil || s.Stale || s.Age != 13*time.Second {
			t.Errorf("%+v", s)
		}
		pass(20 * time.Second)
		if s := c.State(); s.Ratio != 0.5 || s.Err == nil || !s.Stale {
			t.Errorf("%+v", s)
		}
		say(strings.ReplaceAll(half, "0.5", "0.7"))
		pass(12 * time.Second)
		if s := c.State(); c.Ratio() != 0.7 || s.Stale || s.Err != nil {
			t.Errorf("%+v", s)
		}
		if said := log.String(); strings.Count(said, "its last ratio stands") != 1 || strings.Count(said, "answers again") != 1 {
			t.Errorf("%s", said)
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

// Nobody waits for a governor: before its first answer the ratio is Initial, and
// the first question takes as long as it takes.
func TestBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	g := governor(t)
	hold := make(chan struct{})
	g.do(func(_ http.ResponseWriter, r *http.Request) { wait(r, hold) })
	c := ask(t, throttle.Options{URL: g.URL, Initial: 0.25, Refresh: time.Hour})
	until(t, func() bool { return g.asked.Load() > 0 })
	began := time.Now()
	for range 1000 {
		if c.Ratio() != 0.25 || !c.State().Answered.IsZero() {
			t.Fatalf("%+v", c.State())
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it waited for %v", took)
	}
	g.say(half)
	close(hold)                                                  // which answers nothing
	until(t, func() bool { return c.Ratio() == 0.5 })            // but it is asked again soon
	if err := expired(t, c); !errors.Is(err, context.Canceled) { // and who gives up hasn't changed anything
		t.Error(err)
	}
	if c.State().Err != nil {
		t.Error(c.State().Err)
	}
}

func expired(t *testing.T, c *throttle.Client) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return c.Refresh(ctx)
}

// A password in the URL is sent as one, and stands in no error.
func TestSecretsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	g := governor(t)
	g.do(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "hunter2" && r.Header.Get("Authorization") != "Bearer t0ken" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, half)
	})
	c := ask(t, throttle.Options{URL: strings.Replace(g.URL, "://", "://me:hunter2@", 1), Refresh: time.Hour})
	if err := c.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	c = ask(t, throttle.Options{URL: g.URL, Token: "t0ken", Refresh: time.Hour})
	if err := c.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	for what, o := range map[string]throttle.Options{
		"nowhere":      {URL: "http://me:hunter2@127.0.0.1:1"},
		"no address":   {URL: "http://me:hunter2@nowhere.invalid"},
		"no URL":       {URL: "http://me:hunter2@h:port"},
		"no scheme":    {URL: "me:hunter2@127.0.0.1:9095"},
		"a query":      {URL: "http://me:hunter2@h/?hunter2"},
		"a line end":   {URL: "http://h", Token: "hunter2\n"},
		"no ratio":     {URL: "http://h", Initial: 2},
		"no time":      {URL: "http://h", Timeout: -1},
		"another time": {URL: "http://h", Refresh: -1},
	} {
		c, err := throttle.New(o)
		if err == nil {
			err = c.Refresh(t.Context())
			c.Close()
		}
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What is in use is said with each question, under one name.
func TestUseIsSaid(t *testing.T) {
	t.Parallel()
	g := governor(t)
	bodies := make(chan string, 2)
	g.do(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/v1/governor/use" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		bodies <- string(body)
		_, _ = io.WriteString(w, half)
	})
	use := 7.0
	c := ask(t, throttle.Options{URL: g.URL, Refresh: time.Hour, Use: func() float64 { return use }})
	first := <-bodies
	use = 8
	if err := c.Refresh(t.Context()); err != nil || c.Ratio() != 0.5 {
		t.Fatal(err)
	}
	second := <-bodies
	if !strings.Contains(first, `"use":7,"for_seconds":3600}`) || strings.Replace(first, `"use":7`, `"use":8`, 1) != second {
		t.Errorf("%s, then %s", first, second)
	}
	use = math.NaN()
	if err := c.Refresh(t.Context()); err == nil || c.Ratio() != 0.5 {
		t.Errorf("%v", err)
	}
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); {
		if time.Since(began) > time.Minute {
			t.Fatal("it doesn't happen")
		}
		<-time.After(time.Millisecond)
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A program that can bear 2,000 at a time lets in what is left of it.
func Example() {
	governor := httptest.NewServer(text(half)) // yours: "downlink governor", or a gateway's back end
	defer governor.Close()
	c, err := throttle.New(throttle.Options{URL: governor.URL, Timeout: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if err := c.Refresh(context.Background()); err != nil { // once; or begin with Options.Initial
		fmt.Println(err)
	}

	const full = 2000
	inside := 1200 // as you count them; what follows is for each who comes
	if float64(inside) >= full*c.Ratio() {
		fmt.Println("please wait:", c.State().Why)
	}
	// Output: please wait: redis_memory is 90 %
}

// Asking costs nothing: 0 allocations, and a few nanoseconds.
func BenchmarkRatio(b *testing.B) {
	c, err := throttle.New(throttle.Options{URL: "http://127.0.0.1:1", Refresh: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if c.Ratio() != 1 {
				b.Error("it doesn't stand at 1")
			}
		}
	})
}

func TestRatioAllocatesNothing(t *testing.T) {
	c := ask(t, throttle.Options{URL: "http://127.0.0.1:1", Refresh: time.Hour})
	until(t, func() bool { return c.State().Err != nil }) // then it rests
	if n := testing.AllocsPerRun(10_000, func() { _ = c.Ratio() }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
