package post

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"downlink/internal/egress"
	"downlink/internal/inventory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, edit func(*Options)) *Poster {
	t.Helper()
	e, err := egress.New(egress.Options{
		Schemes: []string{"http", "https", "ws"}, Allow: []string{"127.0.0.0/8"}, ConnectTimeout: time.Minute,
		Metrics: egress.NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	o := Options{Egress: e, Timeout: time.Minute}
	if edit != nil {
		edit(&o)
	}
	return New(o)
}

func device(url string) inventory.Device { return inventory.Device{ID: "pos-매장", URL: url} }

// TestRequest: a device gets the payload as it is, and around it what the
// protocol says.
func TestRequest(t *testing.T) {
	got := make(chan map[string]string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := map[string]string{"": r.Method + " " + r.RequestURI + " " + string(body)}
		for name := range r.Header {
			m[name] = r.Header.Get(name)
		}
		delete(m, "Accept-Encoding")
		got <- m
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"ok":true}`)
	}))
	t.Cleanup(s.Close)
	p := open(t, nil)
	for _, tt := range []struct {
		event Event
		want  map[string]string
	}{
		{Event{Type: "order.push", Payload: `{"a": 1}`, Idem: "key 1", Trace: "00-1", State: "x=y"}, map[string]string{
			"": `POST /in?x=1 {"a": 1}`, "Content-Type": "application/json", "Downlink-Event": "order.push", "Downlink-Device": "pos-매장",
			"Idempotency-Key": "key 1", "Traceparent": "00-1", "Tracestate": "x=y", "Content-Length": "8", "User-Agent": "downlink",
		}},
		{Event{Type: "텍스트", Payload: "two\nlines", ID: "5-1", Extra: http.Header{"Downlink-Generation": {"9"}}}, map[string]string{
			"": "POST /in?x=1 two\nlines", "Content-Type": "text/plain; charset=utf-8", "Downlink-Event": "텍스트", "Downlink-Device": "pos-매장",
			"Downlink-Id": "5-1", "Idempotency-Key": "5-1", "Downlink-Generation": "9", "Content-Length": "9", "User-Agent": "downlink",
		}},
		{Event{Type: "t"}, map[string]string{
			"": "POST /in?x=1 ", "Content-Type": "text/plain; charset=utf-8", "Downlink-Event": "t", "Downlink-Device": "pos-매장", "Content-Length": "0", "User-Agent": "downlink",
		}},
	} {
		r, err := p.Post(t.Context(), device(s.URL+"/in?x=1"), tt.event)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&Reply{Status: 202, ContentType: "application/json", RetryAfter: 7 * time.Second, Body: []byte(`{"ok":true}`)}, r); d != "" || !r.OK() {
			t.Error(d)
		}
		if d := cmp.Diff(tt.want, <-got); d != "" {
			t.Error(d)
		}
	}
}

// A wire is a device that does with each connection what a test says, and counts
// the requests whose header has come.
type wire struct {
	net.Listener
	requests, connections atomic.Int32
	over                  chan struct{} // closed at the end of the test
}

func listen(t *testing.T, serve func(c net.Conn, over <-chan struct{}, request func() bool)) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, over: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.connections.Add(1)
			all.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				serve(c, w.over, func() bool {
					r, err := http.ReadRequest(in)
					if err != nil {
						return false
					}
					w.requests.Add(1)
					_, _ = io.Copy(io.Discard, r.Body)
					return true
				})
			})
		}
	})
	t.Cleanup(func() { l.Close(); close(w.over); all.Wait() })
	return w
}

func (w *wire) device() inventory.Device { return device("http://" + w.Addr().String() + "/") }

const accepted = "HTTP/1.1 204 No Content\r\n\r\n"

func fails(t *testing.T, err error, stage egress.Stage, sent, timeout bool) {
	t.Helper()
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Stage != stage || f.Sent != sent || f.Timeout != timeout {
		t.Errorf("%+v, want stage %s, sent %v, timeout %v", err, stage, sent, timeout)
	}
}

// TestNothingIsRepeated: a device that takes a request and breaks off gets it
// once, with and without a key, on a new connection and on one that was used.
func TestNothingIsRepeated(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for _, used := range []bool{false, true} {
			var first atomic.Bool
			first.Store(used)
			w := listen(t, func(c net.Conn, _ <-chan struct{}, request func() bool) {
				if first.Swap(false) && request() {
					_, _ = io.WriteString(c, accepted)
				}
				request() // and the connection is closed
			})
			p := open(t, nil)
			if used {
				if _, err := p.Post(t.Context(), w.device(), Event{Type: "t", Idem: key}); err != nil {
					t.Fatal(err)
				}
			}
			before := w.requests.Load()
			_, err := p.Post(t.Context(), w.device(), Event{Type: "t", Payload: "x", Idem: key})
			fails(t, err, Answer, true, false)
			if n := w.requests.Load() - before; n != 1 {
				t.Errorf("key %q, used %v: the device got it %d times", key, used, n)
			}
		}
	}
}

// TestStaleConnection: a device that has closed a connection in the meantime has
// had nothing; the event goes over a new one.
func TestStaleConnection(t *testing.T) {
	closed := make(chan struct{}, 4)
	w := listen(t, func(c net.Conn, _ <-chan struct{}, request func() bool) {
		if request() {
			_, _ = io.WriteString(c, accepted)
		}
		c.Close()
		closed <- struct{}{}
	})
	p := open(t, nil)
	for range 4 {
		if _, err := p.Post(t.Context(), w.device(), Event{Type: "t", Payload: "x", Idem: "k"}); err != nil {
			// Closed while the request was on its way: then it is honest to say so.
			if f, ok := errors.AsType[*Failure](err); !ok || !f.Sent {
				t.Fatal(err)
			}
			continue // no other connection was made
		}
		<-closed
	}
	if w.requests.Load() > 4 {
		t.Errorf("the device got %d requests", w.requests.Load())
	}
}

// A clock is the context of a call whose time is over when a test says so.
type clock struct {
	context.Context
	over chan struct{}
	once *sync.Once
}

func newClock(t *testing.T) clock { return clock{t.Context(), make(chan struct{}), new(sync.Once)} }

func (c clock) strike() { c.once.Do(func() { close(c.over) }) }

func (c clock) Done() <-chan struct{} { return c.over }

func (c clock) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestFailures: at each step it is known whether anything was sent, and whether
// it was the clock.
func TestFailures(t *testing.T) {
	answering := newClock(t)
	silent := listen(t, func(_ net.Conn, over <-chan struct{}, request func() bool) { request(); answering.strike(); <-over })
	deaf := listen(t, func(_ net.Conn, over <-chan struct{}, _ func() bool) { <-over })
	rubbish := listen(t, func(c net.Conn, _ <-chan struct{}, request func() bool) {
		if request() {
			_, _ = io.WriteString(c, "no HTTP\r\n\r\n")
		}
	})
	huge := listen(t, func(c net.Conn, _ <-chan struct{}, request func() bool) {
		if request() {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
		}
	})
	gone := device("http://127.0.0.1:1/")
	p := open(t, nil)
	post := func(ctx context.Context, d inventory.Device, e Event) error {
		_, err := p.Post(ctx, d, e)
		return err
	}
	ctx := t.Context()
	fails(t, post(answering, silent.device(), Event{Type: "t"}), Answer, true, true)
	sending := newClock(t)
	connected := httptrace.WithClientTrace(sending, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sending.strike() }})
	fails(t, post(connected, deaf.device(), Event{Type: "t", Payload: strings.Repeat("x", 16<<20)}), Send, true, true)
	fails(t, post(ctx, rubbish.device(), Event{Type: "t"}), Answer, true, false)
	fails(t, post(ctx, huge.device(), Event{Type: "t"}), Answer, true, false)
	fails(t, post(ctx, gone, Event{Type: "t"}), egress.Connect, false, false)
	fails(t, post(ctx, device("http://10.0.0.1/"), Event{Type: "t"}), egress.Policy, false, false)
	fails(t, post(ctx, device("ws://127.0.0.1/"), Event{Type: "t"}), egress.Policy, false, false)
	unknown := gone
	unknown.Credential = "x"
	fails(t, post(ctx, unknown, Event{Type: "t"}), egress.Credential, false, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fails(t, post(ctx, silent.device(), Event{Type: "t"}), egress.Connect, false, false)
}

// TestTimeout: a call ends by its own limit, wherever it is by then.
func TestTimeout(t *testing.T) {
	silent := listen(t, func(_ net.Conn, over <-chan struct{}, request func() bool) { request(); <-over })
	p := open(t, func(o *Options) { o.Timeout = 20 * time.Millisecond })
	_, err := p.Post(t.Context(), silent.device(), Event{Type: "t"})
	if f, ok := errors.AsType[*Failure](err); !ok || !f.Timeout {
		t.Errorf("%+v", err)
	}
}

// TestAnswers: what a device says is bounded, and its status is its answer
// whatever becomes of the rest.
func TestAnswers(t *testing.T) {
	says := func(text string) *wire {
		return listen(t, func(c net.Conn, over <-chan struct{}, request func() bool) {
			if request() {
				_, _ = io.WriteString(c, text)
			}
			<-over
		})
	}
	var reading clock // of the call whose answer is being read
	p := open(t, func(o *Options) {
		o.AnswerBytes = func() int { time.AfterFunc(20*time.Millisecond, reading.strike); return 4 }
	})
	for text, want := range map[string]Reply{
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour":                                  {Status: 200, Body: []byte("four")},
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfives":                                 {Status: 200, Body: []byte("five"), Cut: true},
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfo":                                    {Status: 200, Body: []byte("fo"), Cut: true},
		"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n":  {Status: 301, Body: []byte{}},
		"HTTP/1.1 503 No\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n":             {Status: 503, RetryAfter: maxRetryAfter, Body: []byte{}},
		"HTTP/1.1 503 No\r\nRetry-After: tomorrow\r\nContent-Length: 0\r\n\r\n":             {Status: 503, Body: []byte{}},
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxxxx": {Status: 101},
		"HTTP/1.1 100 Continue\r\n\r\n" + accepted:                                          {Status: 204, Body: []byte{}},
	} {
		reading = newClock(t)
		ctx := t.Context()
		if strings.HasSuffix(text, "fo") { // what is missing never comes
			ctx = reading
		}
		r, err := p.Post(ctx, says(text).device(), Event{Type: "t"})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if d := cmp.Diff(&want, r); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

// TestReuse: one connection serves one push after the other.
func TestReuse(t *testing.T) {
	w := listen(t, func(c net.Conn, _ <-chan struct{}, request func() bool) {
		for request() {
			_, _ = io.WriteString(c, accepted)
		}
	})
	p := open(t, nil)
	t.Cleanup(p.opts.Egress.Close)
	for range 20 {
		if _, err := p.Post(t.Context(), w.device(), Event{Type: "t", Payload: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	// One may have been in use for a moment longer than its answer took.
	if w.connections.Load() > 3 || w.requests.Load() != 20 {
		t.Errorf("%d connections for %d requests", w.connections.Load(), w.requests.Load())
	}
}
