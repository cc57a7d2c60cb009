package publish_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/problem"
	"downlink/internal/publish"
)

// hung is how long anything may take. It guards against hangs; no speed is judged by
// it.
const hung = 2 * time.Minute

// serve starts a rig's handler on a real server, since pacing and full duplex
// are the server's.
func (r *rig) serve() *httptest.Server {
	s := httptest.NewServer(r.handler)
	r.t.Cleanup(s.Close)
	return s
}

func ndjsonRequest(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+publish.Path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	return req
}

func TestALineIsAnsweredBeforeTheNextIsSent(t *testing.T) {
	r := newRig(t)
	s := r.serve()
	body, send := io.Pipe()
	defer send.Close()
	go func() { _, _ = io.WriteString(send, `{"device":"demo","type":"t","text":"1"}`+"\n") }()
	resp, err := s.Client().Do(ndjsonRequest(t, s.URL, body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i := range 5 {
		line, err := answers.ReadString('\n')
		if err != nil || !strings.Contains(line, `"id"`) {
			t.Fatalf("answer %d: %q %v", i, line, err)
		}
		if i < 4 {
			_, err = io.WriteString(send, `{"device":"demo","type":"t","text":"1"}`+"\n")
		} else {
			err = send.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := io.ReadAll(answers); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q %v", rest, err)
	}
}

// A batch that lasts must not outlive the right to send it.
func TestABatchEndsWithItsSendersRight(t *testing.T) {
	var withdrawn atomic.Bool
	r := newRig(t, func(o *publish.Options) {
		o.Sender = func(r *http.Request) (publish.Sender, error) {
			if withdrawn.Load() {
				return nil, problem.New(problem.Unauthorized, "no longer")
			}
			return sender(r)
		}
	})
	body, send := io.Pipe()
	defer send.Close()
	go func() { _, _ = io.WriteString(send, `{"device":"demo","type":"t","text":"1"}`+"\n") }()
	s := r.serve()
	resp, err := s.Client().Do(ndjsonRequest(t, s.URL, body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i, want := range []string{`"id"`, `"id"`, "urn:downlink:problem:unauthorized", "urn:downlink:problem:unauthorized"} {
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, want) {
			t.Fatalf("answer %d: %q %v, want %s", i, line, err, want)
		}
		withdrawn.Store(i > 0)
		if _, err := io.WriteString(send, `{"device":"demo","type":"t","text":"1"}`+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.log.stored()); n != 2 {
		t.Errorf("%d events are stored", n)
	}
}

// dialBatch sends a chunked request by hand, to control when it reads. What follows
// its header comes in one piece with it, however slow this machine is.
func dialBatch(t *testing.T, s *httptest.Server, extra, follows string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(hung))
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n%s\r\n%s", publish.Path, extra, follows)
	return conn
}

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

func TestAClientThatReadsOnlyAtTheEndIsServed(t *testing.T) {
	r := newRig(t)
	conn := dialBatch(t, r.serve(), "", "")
	const n = 20000
	var body strings.Builder
	for i := range n {
		body.WriteString(chunk(fmt.Sprintf(`{"device":"demo","type":"t","text":"%d"}`+"\n", i)))
	}
	if _, err := io.WriteString(conn, body.String()+"0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := replies(t, resp.Body); len(got) != n {
		t.Errorf("%d answers, want %d", len(got), n)
	}
}

// A client that never reads must neither hold memory without bound nor hang.
func TestAClientThatNeverReadsIsCutOff(t *testing.T) {
	const limit = time.Second
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = limit })
	ended := make(chan any, 1)
	inner := r.handler
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			p := recover()
			ended <- p
			panic(http.ErrAbortHandler)
		}()
		inner.ServeHTTP(w, req)
	})
	s := r.serve()
	for try := range attempts {
		pause := sendOn(t, dialBatch(t, s, "", ""))
		select {
		case p := <-ended:
			if p == nil && pause >= limit/2 && try < attempts-1 {
				continue // it was this machine that sent nothing
			}
			if err, _ := p.(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("the batch ended with %v; it was never sent nothing for longer than %v", p, pause)
			}
		case <-time.After(hung):
			t.Error("the batch goes on although nobody reads")
		}
		return
	}
}

// attempts is how often something is tried that a machine may be too slow for.
const attempts = 20

// sendOn sends lines until it can't any more, and says for how long it sent none at
// most, but for the last time.
func sendOn(t *testing.T, conn net.Conn) (pause time.Duration) {
	t.Helper()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	// An error is longer than the line that it answers.
	bad := chunk(strings.Repeat("x\n", 500))
	for last := time.Now(); ; {
		_, err := io.WriteString(conn, bad)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server takes everything from a client that reads nothing")
		}
		if err != nil {
			return pause
		}
		pause, last = max(pause, time.Since(last)), time.Now()
	}
}

func TestASlowBodyEndsInTime(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = 100 * time.Millisecond })
	s := r.serve()
	conn := dialBatch(t, s, "", chunk(`{"device":"demo","type":"t","text":"1"}`+"\n"+`{"device":"de`))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := replies(t, resp.Body)
	if len(got) != 2 || got[0].Error != nil || !got[1].is(problem.RequestTimeout) {
		t.Errorf("batch: %+v", got)
	}

	single, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	_, _ = io.WriteString(single, "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
	if resp, err := http.ReadResponse(bufio.NewReader(single), nil); err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("single: %v %v", resp, err)
	}
	if n := len(r.log.stored()); n != 1 {
		t.Errorf("%d events stored", n)
	}
}

// A short body that was announced whole is one call of the log, though it comes
// in pieces.
func TestAnAnnouncedBatchIsStoredAtOnce(t *testing.T) {
	r := newRig(t)
	conn, err := net.Dial("tcp", r.serve().Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line := `{"device":"demo","type":"t","text":"1"}` + "\n"
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", publish.Path, 3*len(line), line)
	<-time.After(50 * time.Millisecond) // the first line has been read, most likely
	fmt.Fprint(conn, line+line)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := replies(t, resp.Body); len(got) != 3 || r.log.calls != 1 {
		t.Errorf("%d answers, %d calls of the log", len(got), r.log.calls)
	}
}

// A body may take long, as long as it moves.
func TestABodyThatTricklesIsRead(t *testing.T) {
	const limit = time.Second
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = limit })
	s := r.serve()
	for try := range attempts {
		got, pause := trickle(t, dialBatch(t, s, "", ""))
		if len(got) == 1 && got[0].Error == nil {
			return
		}
		if pause < limit/2 || try == attempts-1 {
			t.Fatalf("%+v, and it never moved for %v at most", got, pause)
		}
	}
}

// trickle sends a line in small pieces, for longer than a second, and says for how
// long none came at most.
func trickle(t *testing.T, conn net.Conn) (got []reply, pause time.Duration) {
	t.Helper()
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for piece := range slices.Chunk([]byte(`{"device":"demo","type":"t","text":"1"}`+"\n"), 2) {
		<-tick.C
		_, err := io.WriteString(conn, chunk(string(piece)))
		if pause, last = max(pause, time.Since(last)), time.Now(); err != nil {
			return nil, pause
		}
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, max(pause, time.Since(last))
	}
	return replies(t, resp.Body), max(pause, time.Since(last))
}

// While the log works, the server watches for a hang-up. A deadline that the
// body left behind would be taken for one.
func TestAReadBodyLeavesNoDeadline(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout, o.AppendTimeout = 50*time.Millisecond, time.Minute })
	r.log.block = make(chan struct{})
	inner, ended := r.handler, make(chan error, 1)
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		time.AfterFunc(200*time.Millisecond, func() { close(r.log.block) })
		inner.ServeHTTP(w, req)
		ended <- req.Context().Err()
	})
	s := r.serve()
	resp, err := s.Client().Post(s.URL+publish.Path, "application/json", strings.NewReader(`{"device":"demo","type":"t","text":"1"}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	if err := <-ended; err != nil {
		t.Errorf("the request's context ended: %v", err)
	}
}

func TestABatchThatBreaksOffStoresNoHalfLine(t *testing.T) {
	r := newRig(t)
	conn := dialBatch(t, r.serve(), "", chunk(`{"device":"demo","type":"t","text":"1"}`+"\n"+`{"device":"demo","type":"t","text":"2"}`))
	_ = conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := replies(t, resp.Body)
	if len(got) != 2 || got[0].Error != nil || !got[1].is(problem.InvalidJSON) || len(r.log.stored()) != 1 {
		t.Errorf("%+v, %d stored", got, len(r.log.stored()))
	}
}

func TestContinueIsSentBeforeTheAnswer(t *testing.T) {
	r := newRig(t)
	conn := dialBatch(t, r.serve(), "Expect: 100-continue\r\n", "")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusContinue {
		t.Fatalf("%v %v", resp, err)
	}
	_, _ = io.WriteString(conn, chunk(`{"device":"demo","type":"t","text":"1"}`+"\n")+"0\r\n\r\n")
	if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 || len(replies(t, resp.Body)) != 1 {
		t.Fatalf("%v %v", resp, err)
	}
}

// The deadlines of a request must not reach the next one on the connection.
func TestTheConnectionServesTheNextRequest(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = 50 * time.Millisecond })
	s := r.serve()
	conn := dialBatch(t, s, "", chunk(`{"device":"demo","type":"t","text":"1"}`+"\n")+"0\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || len(replies(t, resp.Body)) != 1 {
		t.Fatal(resp, err)
	}
	<-time.After(150 * time.Millisecond) // longer than the deadline
	body := `{"device":"demo","type":"t","text":"2"}`
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", publish.Path, len(body), body)
	if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
}
