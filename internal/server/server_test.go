package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"downlink/internal/lobby"
)

func TestMain(m *testing.M) {
	// net/http waits half a second before it closes a connection that it has refused.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// hung is how long anything may take. It guards against hangs; no speed is judged by
// it.
const hung = 2 * time.Minute

// attempts is how often something is tried that a machine may be too slow for.
const attempts = 20

func start(t *testing.T, h http.Handler) *Server {
	t.Helper()
	return serve(t, func(o *Options) { o.Handler = h })
}

// hasty is a server that waits no longer for a request than some tests can.
func hasty(t *testing.T, h http.Handler) *Server {
	t.Helper()
	return serve(t, func(o *Options) { o.Handler, o.ReadHeaderTimeout = h, 200*time.Millisecond })
}

// serve runs a server until the test ends.
func serve(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	o := Options{
		Name: "device", Address: "127.0.0.1:0", ReadHeaderTimeout: hung, WriteTimeout: time.Minute,
		MaxHeaderBytes: 4 << 10, Lobby: roomy("device"), Reserve: 2, Logger: slog.New(slog.DiscardHandler),
	}
	change(&o)
	o.Lobby.Keep = o.Brief != nil
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// roomy is a lobby for a hundred connections without a stream, and any number
// with one.
func roomy(listener string) lobby.Options {
	return lobby.Options{
		Waiting: is(100), Retry: time.Second, Metrics: lobby.NewMetrics(nil, listener).Of(listener),
	}
}

func is(n int) func() int { return func() int { return n } }

func dial(t *testing.T, s *Server, request string) *bufio.Reader {
	t.Helper()
	return bufio.NewReader(dialConn(t, s, request))
}

func dialConn(t *testing.T, s *Server, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(hung)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSlowHeadersAreCutAndStreamsAreNot: the stream outlives every time limit
// of the server several times.
func TestSlowHeadersAreCutAndStreamsAreNot(t *testing.T) {
	cut := make(chan struct{})
	s := hasty(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = io.WriteString(w, "begun\n")
		_ = rc.Flush()
		<-cut // longer than a slow header may take
		_, _ = io.WriteString(w, "still here\n")
		_ = rc.Flush()
	}))
	stream := begin(t, s)
	for range 3 {
		slow := dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		if _, err := io.ReadAll(slow); err != nil {
			t.Errorf("a slow header wasn't cut: %v", err)
		}
	}
	close(cut)
	rest := make([]byte, 64)
	n, err := stream.Read(rest)
	for !strings.Contains(string(rest[:n]), "still here") {
		if err != nil {
			t.Fatalf("the stream was cut: %q %v", rest[:n], err)
		}
		var more int
		more, err = stream.Read(rest[n:])
		n += more
	}
}

// begin opens a stream, again if a request took this machine longer than it may.
func begin(t *testing.T, s *Server) *bufio.Reader {
	t.Helper()
	for range attempts {
		stream := dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		for {
			line, err := stream.ReadString('\n')
			if line == "begun\n" {
				return stream
			}
			if err != nil {
				break
			}
		}
	}
	t.Fatal("no stream has begun")
	return nil
}

func TestLargeHeaderIsRefused(t *testing.T) {
	s := start(t, http.NotFoundHandler())
	resp, err := http.ReadResponse(dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 20<<10)+"\r\n\r\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(resp.Status)
	}
}

func TestUsedAddressIsNamed(t *testing.T) {
	s := start(t, http.NotFoundHandler())
	_, err := Listen(Options{Name: "back-end", Address: s.Addr().String(), Lobby: roomy("back-end"), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), s.Addr().String()) || !strings.Contains(err.Error(), "back-end") {
		t.Error(err)
	}
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	begun := make(chan struct{})
	s := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no patience at all
	s.Shutdown(ctx)
}

func TestHealth(t *testing.T) {
	ready, why := false, "the log is away"
	answering := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	health := func() (bool, string) { return ready, why }
	for name, h := range map[string]http.Handler{
		"device":   Device([]Route{{Path: "/events", Handler: answering("events")}}, health),
		"back end": Backend([]Route{{Method: "GET", Path: "/metrics", Handler: answering("metrics")}}, everybody, health),
	} {
		s := start(t, h)
		get := func(path string) (int, string) {
			resp, err := http.ReadResponse(dial(t, s, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(body)
		}
		ready = false
		if code, body := get("/readyz"); code != 503 || !strings.Contains(body, why) {
			t.Errorf("%s: %d %q", name, code, body)
		}
		ready = true
		for path, want := range map[string]int{"/readyz": 200, "/healthz": 200, "/nothing": 404, "/debug/pprof/cmdline": 404} {
			if code, _ := get(path); code != want {
				t.Errorf("%s %s: %d", name, path, code)
			}
		}
	}
}

// TestPathsAreExact: what is served elsewhere isn't redirected to, with a token
// that may stand in the URL.
func TestPathsAreExact(t *testing.T) {
	events := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "events") })
	h := Device([]Route{{Path: "/events", Handler: events}}, func() (bool, string) { return true, "" })
	for path, want := range map[string]int{
		"/events": 200, "/%65vents": 200, "//events": 404, "/./events": 404, "/x/../events": 404, "/events/": 404, "/events//": 404, "//evil.example/..": 404,
	} {
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequest("GET", "http://x"+path+"?access_token=marker", nil))
		if a.Code != want || strings.Contains(a.Body.String(), "marker") || a.Header().Get("Location") != "" {
			t.Errorf("%s: %d %s %v", path, a.Code, a.Body, a.Header())
		}
	}
}

// TestBodiesThatNobodyAskedFor: a client that promises a body and doesn't send
// it gets its answer and its end all the same.
func TestBodiesThatNobodyAskedFor(t *testing.T) {
	nothing := http.NotFoundHandler()
	ready := func() (bool, string) { return true, "" }
	for name, s := range map[string]*Server{
		"device":   hasty(t, Device(nil, ready)),
		"back end": hasty(t, Backend([]Route{{Method: "GET", Path: "/metrics", Handler: nothing}}, everybody, ready)),
	} {
		for _, target := range []string{"POST /healthz", "GET /healthz", "GET /nothing", "POST /metrics"} {
			for _, body := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
				c := dial(t, s, target+" HTTP/1.1\r\nHost: localhost\r\n"+body+"\r\n\r\n")
				if _, err := io.ReadAll(c); err != nil {
					t.Errorf("%s: %s with %s isn't ended: %v", name, target, body, err)
				}
			}
		}
	}
}

// TestForeignHostIsRefusedOnLoopback: a name that was pointed here.
func TestForeignHostIsRefusedOnLoopback(t *testing.T) {
	s := start(t, Backend(nil, everybody, func() (bool, string) { return true, "" }))
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1:9090": 200, "[::1]:9090": 200,
		"evil.example": 421, "localhost.evil.example:80": 421, "127.0.0.1.evil.example": 421,
	} {
		resp, err := http.ReadResponse(dial(t, s, "GET /healthz HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %s: %s, want %d", host, resp.Status, want)
		}
	}
}

// TestHTTP2ClientThatReadsNothingIsCut: its windows are wide open, so that no
// stream notices; the connection must.
func TestHTTP2ClientThatReadsNothingIsCut(t *testing.T) {
	ended := make(chan struct{})
	s, err := Listen(Options{
		Name: "device", Address: "127.0.0.1:0", ReadHeaderTimeout: time.Minute, WriteTimeout: 300 * time.Millisecond,
		Lobby: roomy("device"), Logger: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer close(ended)
			rc := http.NewResponseController(w)
			for chunk := make([]byte, 8<<10); ; {
				if _, err := w.Write(chunk); err != nil || rc.Flush() != nil {
					return
				}
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	defer func() { s.Close(); <-done }()
	var request bytes.Buffer // in one piece: no ping comes into between
	request.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&request, nil)
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/"}} {
		if err := fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}),
		framer.WriteWindowUpdate(0, 1<<30),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}),
	)
	if err != nil {
		t.Fatal(err)
	}
	dialConn(t, s, request.String())
	select {
	case <-ended:
	case <-time.After(hung):
		t.Error("it holds its stream for ever")
	}
}

func everybody(h http.Handler) http.Handler { return h }

// TestRoutes: a path answers its methods, HEAD as GET, and says which when it
// is asked with another; profiles are for those whom admin lets pass.
func TestRoutes(t *testing.T) {
	answering := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, text+r.PathValue("device"))
		})
	}
	nobody := func(http.Handler) http.Handler { return answering("not you") }
	h := Backend([]Route{
		{Path: "/v1/own", Handler: answering("own")},
		{Method: "POST", Path: "/v1/devices/{device}/revoke", Handler: answering("revoke ")},
		{Method: "DELETE", Path: "/v1/devices/{device}/revoke", Handler: answering("restore ")},
		{Method: "GET", Path: "/v1/limits", Handler: answering("limits")},
	}, nobody, func() (bool, string) { return true, "" })
	for _, c := range []struct {
		request string
		status  int
		want    string
	}{
		{"PUT /v1/own", 200, "own"},
		{"POST /v1/devices/a%2Fb/revoke", 200, "revoke a/b"},
		{"DELETE /v1/devices/a/revoke", 200, "restore a"},
		{"GET /v1/devices/a/revoke", 405, "DELETE, POST"},
		{"HEAD /v1/limits", 200, ""},
		{"PUT /v1/limits", 405, "GET"},
		{"GET /v1/nothing", 404, "/v1/nothing"},
		{"GET /debug/pprof/", 200, "not you"},
		{"GET /debug/pprof/heap", 200, "not you"},
		{"GET /debug/pprof/profile", 200, "not you"},
		{"GET /debug/pprof/trace", 200, "not you"},
		{"POST /debug/pprof/trace", 405, "GET"},
		{"GET /debug/pprof/heap/x", 404, "/debug/pprof/heap/x"},
		{"POST /healthz", 405, "GET"},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequest(method, path, nil))
		if a.Code != c.status || !strings.Contains(a.Body.String(), c.want) || (c.status == 405) != (a.Header().Get("Allow") != "") {
			t.Errorf("%s: %d %s %v", c.request, a.Code, a.Body, a.Header())
		}
	}
}

// TestPagesStartNoProfile: a browser sends their GET unasked.
func TestPagesStartNoProfile(t *testing.T) {
	h := Backend(nil, everybody, func() (bool, string) { return true, "" })
	for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200, "": 200} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1"} {
			if want == 200 && path != "/debug/pprof/" {
				continue // it takes a second
			}
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Sec-Fetch-Site", site)
			a := httptest.NewRecorder()
			h.ServeHTTP(a, r)
			if a.Code != want {
				t.Errorf("%s of %q: %d, want %d", path, site, a.Code, want)
			}
		}
	}
}
