package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// what the two ways say, so that a test sees which one was taken.
func byWay(way string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("do") {
		case "panic":
			panic("as asked")
		case "abort":
			panic(http.ErrAbortHandler)
		case "refuse":
			w.Header().Set("Downlink-Refused", "as-asked")
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, way, " ", r.Method, " ", r.RemoteAddr, " ", r.Header.Get("Last-Event-ID"))
	})
}

// skimmer serves /events by a handler that says "skimmed", everything else,
// and what isn't plain, by one that says "net/http".
func skimmer(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("nothing is skimmed here")
	}
	return serve(t, func(o *Options) {
		o.Handler = byWay("net/http")
		o.Stream, o.StreamPath = byWay("skimmed"), "/events"
		if change != nil {
			change(o)
		}
	})
}

func answered(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func TestWhatIsSkimmed(t *testing.T) {
	s := skimmer(t, nil)
	for name, c := range map[string]struct{ request, says string }{
		"plain":            {"GET /events HTTP/1.1\r\nHost: x\r\n\r\n", "200 skimmed GET 127.0.0.1:"},
		"query and cursor": {"GET /events?device=a HTTP/1.1\r\nhost: x\r\nlast-event-id: 5-0\r\n\r\n", "5-0"},
		"refusal":          {"GET /events?do=refuse HTTP/1.1\r\nHost: x\r\n\r\n", "503 no"},
		"panic":            {"GET /events?do=panic HTTP/1.1\r\nHost: x\r\n\r\n", "EOF"},
		"abort":            {"GET /events?do=abort HTTP/1.1\r\nHost: x\r\n\r\n", "EOF"},

		"other path":      {"GET /eventsx HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200 net/http GET"},
		"DELETE":          {"DELETE /events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200 net/http DELETE"},
		"POST":            {"POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "200 net/http POST"},
		"HTTP/1.0":        {"GET /events HTTP/1.0\r\nHost: x\r\n\r\n", "200 net/http"},
		"no host":         {"GET /events HTTP/1.1\r\n\r\n", "400 "},
		"close asked":     {"GET /events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200 net/http"},
		"body":            {"GET /events HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", "200 net/http"},
		"chunked body":    {"GET /events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "200 net/http"},
		"expectation":     {"GET /events HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", "200 net/http"},
		"upgrade":         {"GET /events HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "200 net/http"},
		"second request":  {"GET /events HTTP/1.1\r\nHost: x\r\n\r\nGET /events HTTP/1.1\r\nHost: x\r\n\r\n", "200 net/http"},
		"control":         {"GET /events HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", "400 "},
		"folded header":   {"GET /events HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", "200 "},
		"space in name":   {"GET /events HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n", "400 "},
		"not a host":      {"GET /events HTTP/1.1\r\nHost: a b\r\n\r\n", "400 "},
		"two hosts":       {"GET /events HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400 "},
		"lines end in LF": {"GET /events HTTP/1.1\nHost: x\n\r\n", "200 net/http"},
		"ends twice":      {"GET /events HTTP/1.1\r\nHost: x\r\n\nGET /events HTTP/1.1\r\nHost: x\r\n\r\n", "200 net/http"},
		"no header name":  {"GET /events HTTP/1.1\r\nHost: x\r\n: a\r\n\r\n", "400 "},
		"rubbish":         {"GET /events rubbish\r\n\r\n", "400 "},
		"long header":     {"GET /events HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 6000) + "\r\n\r\n", "200 net/http"},
		"endless header":  {"GET /events HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 20000) + "\r\n\r\n", "431 "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answered(t, dial(t, s, c.request)); !strings.Contains(got, c.says) {
				t.Errorf("says %q, want %q", got, c.says)
			}
		})
	}
}

// A promised body is net/http's, which waits for it before it answers.
func TestAPromisedBodyIsWaitedFor(t *testing.T) {
	s := skimmer(t, nil)
	c := dialConn(t, s, "GET /events HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
	await(t, s, 1, 0)
	if _, err := io.WriteString(c, "hi"); err != nil {
		t.Fatal(err)
	}
	if got := answered(t, bufio.NewReader(c)); !strings.Contains(got, "200 net/http") {
		t.Errorf("says %q", got)
	}
}

// A request that comes in pieces is net/http's, with all of its pieces.
func TestARequestInPieces(t *testing.T) {
	s := skimmer(t, nil)
	const request = "GET /events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 5-0\r\nConnection: close\r\n\r\n"
	for _, at := range []int{1, 3, 11, len(request) - 1} {
		c := dialConn(t, s, request[:at])
		<-time.After(20 * time.Millisecond) // two segments: it doesn't matter to the test if they meet
		if _, err := io.WriteString(c, request[at:]); err != nil {
			t.Fatal(err)
		}
		if got := answered(t, bufio.NewReader(c)); !strings.Contains(got, "200 ") || !strings.Contains(got, "5-0") {
			t.Errorf("cut at %d: %q", at, got)
		}
	}
}

func TestSilentConnectionsAreCut(t *testing.T) {
	s := skimmer(t, func(o *Options) { o.ReadHeaderTimeout = 300 * time.Millisecond })
	for _, said := range []string{"", "GET /events HTTP/1.1\r\nHost:"} {
		c := dialConn(t, s, said)
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("after %q: %v", said, err)
		}
	}
}

// What a client says behind its request doesn't cost it the answer.
func TestASkimmedAnswerOutlivesStrayBytes(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan struct{})
	s := skimmer(t, func(o *Options) {
		o.Stream = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-hold
			fmt.Fprint(w, "held")
		})
	})
	c := dialConn(t, s, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	if _, err := io.WriteString(c, strings.Repeat("stray", 1000)); err != nil { // on loopback it is there when this returns
		t.Fatal(err)
	}
	close(hold)
	all, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(all), "held") {
		t.Errorf("%q, %v", all, err)
	}
}

// Shutdown waits for what it has let in, and lets nobody in any more.
func TestShutdownWaitsForSkimmedRequests(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan struct{})
	s := skimmer(t, func(o *Options) {
		o.Stream = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-hold
			fmt.Fprint(w, "held")
		})
	})
	r := dial(t, s, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	down := make(chan struct{})
	go func() { s.Shutdown(context.Background()); close(down) }()
	for {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case <-down:
		t.Fatal("it didn't wait")
	default:
	}
	close(hold)
	<-down
	if got := answered(t, r); got != "200 held" {
		t.Error(got)
	}
}
