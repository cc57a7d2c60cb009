package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http waits half a second before it closes a connection that it has refused.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func start(t *testing.T, h http.Handler) *Server {
	t.Helper()
	s, err := Listen(Options{
		Name: "device", Address: "127.0.0.1:0", Handler: h, ReadHeaderTimeout: 200 * time.Millisecond,
		MaxHeaderBytes: 4 << 10, Logger: slog.New(slog.DiscardHandler),
	})
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

func dial(t *testing.T, s *Server, request string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // against hangs
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}

// TestSlowHeadersAreCutAndStreamsAreNot: the stream outlives every time limit
// of the server several times.
func TestSlowHeadersAreCutAndStreamsAreNot(t *testing.T) {
	cut := make(chan struct{})
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = io.WriteString(w, "begun\n")
		_ = rc.Flush()
		<-cut // longer than a slow header may take
		_, _ = io.WriteString(w, "still here\n")
		_ = rc.Flush()
	}))
	stream := dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	for {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "begun\n" {
			break
		}
	}
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
	_, err := Listen(Options{Name: "back-end", Address: s.Addr().String(), Logger: slog.New(slog.DiscardHandler)})
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
		"device":   Device(answering("events"), health),
		"back end": Backend(answering("publish"), answering("openapi"), answering("metrics"), health),
	} {
		s := start(t, h)
		get := func(path string) (int, string) {
			resp, err := http.ReadResponse(dial(t, s, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), nil)
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
