package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// echoing says which way a request came, and its body.
func echoing(way string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch string(body) {
		case "panic":
			panic("as asked")
		case "refuse":
			w.Header().Set("X-Lines", "one\r\ntwo: three")
			w.WriteHeader(http.StatusUnprocessableEntity)
		case "close":
			w.Header().Set("Connection", "close")
		}
		fmt.Fprintf(w, "%s %s %s %q", way, r.Method, r.RemoteAddr, body)
	})
}

func directServer(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	return serve(t, func(o *Options) {
		o.Handler = echoing("net/http")
		o.Brief, o.BriefPath = echoing("direct"), "/v1/events"
		if change != nil {
			change(o)
		}
	})
}

func brief(body string) string {
	return fmt.Sprintf("POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestWhatIsAnsweredDirectly(t *testing.T) {
	s := directServer(t, nil)
	const head = "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	large := strings.Repeat("x", 40<<10)
	for name, c := range map[string]struct{ request, says string }{
		"brief":   {brief("{}"), `200 direct POST 127.0.0.1:`},
		"refused": {brief("refuse"), `422 direct`},
		"empty":   {brief(""), `200 direct`},
		"panic":   {brief("panic"), "EOF"},

		"other path":      {"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "200 net/http GET"},
		"path and query":  {strings.Replace(brief("{}"), "/events", "/events?a=b", 1), "200 net/http"},
		"other type":      {strings.Replace(brief("{}"), "application/json", "application/x-ndjson", 1), "200 net/http"},
		"two types":       {head + "Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n", "200 net/http"},
		"no type":         {"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "200 net/http"},
		"large":           {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large), "200 net/http"},
		"large header":    {head + "X: " + strings.Repeat("x", 5<<10) + "\r\nContent-Length: 0\r\n\r\n", "200 net/http"},
		"endless header":  {head + "X: " + strings.Repeat("x", 20<<10) + "\r\nContent-Length: 0\r\n\r\n", "431 "},
		"chunked":         {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "200 net/http"},
		"both lengths":    {head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "net/http"},
		"two lengths":     {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "400 "},
		"expectation":     {head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", "100 "},
		"close":           {head + "Connection: close\r\nContent-Length: 2\r\n\r\n{}", "200 net/http"},
		"HTTP/1.0":        {strings.Replace(brief("{}"), "HTTP/1.1", "HTTP/1.0", 1), "200 net/http"},
		"no host":         {strings.Replace(brief("{}"), "Host: localhost\r\n", "", 1), "400 "},
		"negative length": {head + "Content-Length: -1\r\n\r\n", "400 "},
		"space in name":   {head + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "400 "},
		"not a host":      {strings.Replace(brief("{}"), "localhost", "a b", 1), "400 "},
		"two hosts":       {strings.Replace(brief("{}"), "Host: ", "Host: y\r\nHost: ", 1), "400 "},
		"lines end in LF": {strings.Replace(brief("{}"), "localhost\r", "localhost", 1), "200 net/http"},
		"ends twice":      {head + "Content-Length: 2\r\n\n{}GET /healthz HTTP/1.1\r\n\r\n{}", `200 net/http POST`},
		"control":         {head + "X: a\x00b\r\nContent-Length: 0\r\n\r\n", "400 "},
		"rubbish":         {"POST /v1/events rubbish\r\n\r\n", "400 "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answered(t, dial(t, s, c.request)); !strings.Contains(got, c.says) {
				t.Errorf("says %.200q, want %q", got, c.says)
			}
		})
	}
}

// A connection may bring one kind of request after the other; nothing is lost
// where it changes hands, and from then on net/http keeps it.
func TestAConnectionChangesHands(t *testing.T) {
	s := directServer(t, nil)
	c := dialConn(t, s, brief("1"))
	r := bufio.NewReader(c)
	for i, step := range []struct{ request, says string }{
		{"", `direct`},
		{brief("2"), `direct`},
		{brief("refuse"), `422 direct`},
		{brief("3"), `direct`},
		{brief("4") + brief("5"), `"4"`},
		{"", `net/http`},
		{brief("6"), `200 net/http`},
	} {
		if _, err := io.WriteString(c, step.request); err != nil {
			t.Fatal(err)
		}
		if got := answered(t, r); !strings.Contains(got, step.says) {
			t.Fatalf("step %d says %q, want %q", i, got, step.says)
		}
	}
}

func TestDirectRequestsInPieces(t *testing.T) {
	s := directServer(t, nil)
	request := brief(`{"device":"a"}`)
	for _, at := range []int{1, 5, 30, len(request) - 3} {
		c := dialConn(t, s, request[:at])
		<-time.After(20 * time.Millisecond) // two segments: it doesn't matter to the test if they meet
		if _, err := io.WriteString(c, request[at:]); err != nil {
			t.Fatal(err)
		}
		if got := answered(t, bufio.NewReader(c)); !strings.Contains(got, `200 `) || !strings.Contains(got, `device`) {
			t.Errorf("cut at %d: %q", at, got)
		}
	}
}

func TestDirectAnswersCantEndAHeader(t *testing.T) {
	s := directServer(t, nil)
	resp, err := http.ReadResponse(dial(t, s, brief("refuse")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := resp.Header.Get("X-Lines"); !strings.Contains(v, "one") || !strings.Contains(v, "two: three") || resp.Header.Get("Date") == "" {
		t.Errorf("header %v", resp.Header)
	}
}

func TestDirectAnswerEndsTheConnectionIfToldSo(t *testing.T) {
	s := directServer(t, nil)
	if all, err := io.ReadAll(dial(t, s, brief("close"))); err != nil || !bytes.Contains(all, []byte("direct")) {
		t.Errorf("%q, %v", all, err)
	}
}

// Shutdown ends who is between two requests, and waits for who is in one.
func TestShutdownAndDirectRequests(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan struct{})
	s := directServer(t, func(o *Options) {
		o.Brief = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength == 4 {
				close(begun)
				<-hold
			}
			fmt.Fprint(w, "done")
		})
	})
	idle, busy := dial(t, s, brief("1")), dial(t, s, brief("busy"))
	if got := answered(t, idle); got != "200 done" {
		t.Fatal(got)
	}
	<-begun
	down := make(chan struct{})
	go func() { s.Shutdown(context.Background()); close(down) }()
	if _, err := idle.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
	select {
	case <-down:
		t.Error("it didn't wait")
	default:
	}
	close(hold)
	<-down
	if got := answered(t, busy); got != "200 done" {
		t.Error(got)
	}
}

// The address is in the request, or nobody could tell a page that was pointed
// here from a program of this machine.
func TestForeignHostIsRefusedDirectly(t *testing.T) {
	s := directServer(t, func(o *Options) { o.Brief = Brief(o.Brief) })
	if got := answered(t, dial(t, s, strings.Replace(brief("{}"), "localhost", "evil.example", 1))); !strings.HasPrefix(got, "421 ") && !strings.HasPrefix(got, "403 ") {
		t.Error(got)
	}
	if got := answered(t, dial(t, s, brief("{}"))); !strings.Contains(got, "200 direct") {
		t.Error(got)
	}
}

// FuzzBrief: what is answered directly is what net/http would have understood.
func FuzzBrief(f *testing.F) {
	f.Add([]byte(brief("{}")))
	f.Add([]byte(brief("{}") + brief("{}")))
	f.Add([]byte(strings.Replace(brief("{}"), "Length: 2", "Length: +2", 1)))
	c := &directConn{like: new(http.Request)}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r := c.brief(b, []byte("POST /v1/events "), 16<<10); r != nil {
			asNetHTTP(t, b, r)
		}
	})
}

// asNetHTTP compares a request with what net/http reads from the same bytes,
// which must have nothing left after it.
func asNetHTTP(t *testing.T, b []byte, got *http.Request) {
	t.Helper()
	reader := bufio.NewReader(bytes.NewReader(b))
	want, err := http.ReadRequest(reader)
	if err != nil {
		t.Fatalf("%q was taken, but net/http says: %v", b, err)
	}
	wantBody, err := io.ReadAll(want.Body)
	gotBody, err2 := io.ReadAll(got.Body)
	if rest, _ := reader.Peek(1); err != nil || err2 != nil || len(rest) != 0 || !bytes.Equal(gotBody, wantBody) {
		t.Errorf("%q: body %q (%v), want %q (%v) and nothing after it", b, gotBody, err2, wantBody, err)
	}
	type parts struct {
		Method, URL, Target, Proto, Host string
		Length                           int64
		Header                           http.Header
		Close                            bool
	}
	of := func(r *http.Request) parts {
		return parts{r.Method, r.URL.String(), r.RequestURI, r.Proto, r.Host, r.ContentLength, r.Header, r.Close}
	}
	if diff := cmp.Diff(of(want), of(got)); diff != "" {
		t.Errorf("%q (-net/http +ours):\n%s", b, diff)
	}
}

// BenchmarkAlone is what reading a request costs.
func BenchmarkAlone(b *testing.B) {
	request := []byte(brief(`{"device":"device-1","type":"t","payload":{"a":1}}`))
	like := new(http.Request)
	b.ReportAllocs()
	for b.Loop() {
		if alone(request, like) == nil {
			b.Fatal("not read")
		}
	}
}
