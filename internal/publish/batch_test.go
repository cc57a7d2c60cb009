package publish_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
	"downlink/internal/publish"
)

// A reply is one line of a batch's answer.
type reply struct {
	ID       event.ID
	Shard    int
	IDs      []struct{ Device string }
	Replayed bool
	Error    *struct {
		Type, Detail, Hint, Field string
		Status                    int
		IDs, Errors               []struct{ Shard int }
	}
}

func (r reply) is(code problem.Code) bool {
	return r.Error != nil && r.Error.Type == problem.New(code, "").Type
}

func replies(t *testing.T, body io.Reader) []reply {
	t.Helper()
	var out []reply
	s := bufio.NewScanner(body)
	for s.Scan() {
		var r reply
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%v in %q", err, s.Text())
		}
		out = append(out, r)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *rig) batch(body string, header ...string) []reply {
	r.t.Helper()
	a := r.post(body, append(header, "Content-Type", "application/x-ndjson")...)
	if a.Code != 200 || a.Header().Get("Content-Type") != "application/x-ndjson" {
		r.t.Fatalf("%d %v %s", a.Code, a.Header(), a.Body)
	}
	return replies(r.t, a.Body)
}

func TestBatchAnswersALineForALineInOrder(t *testing.T) {
	r := newRig(t)
	got := r.batch(`{"device":"demo","type":"t","text":"1"}
nonsense
{"device":"demo","type":"t","text":"2"}` + "\r\n\n \t\r\n" + `{"devices":["demo","A83F21"],"type":"t","text":"3"}
{"device":"demo","type":"resync","text":""}
{"device":"*","type":"t","text":"4"}
{"device":"demo","type":"t","text":"` + strings.Repeat("x", 1001) + `"}
{"device":"demo","type":"t","text":"5"}` + "\n")
	if len(got) != 8 {
		t.Fatalf("%d answers: %+v", len(got), got)
	}
	for i, bad := range map[int]problem.Code{1: problem.InvalidJSON, 4: problem.InvalidEvent, 6: problem.EventTooLarge} {
		if !got[i].is(bad) {
			t.Errorf("line %d: %+v, want %s", i, got[i].Error, bad)
		}
	}
	for _, i := range []int{0, 2, 7} {
		if got[i].ID.IsZero() || got[i].Error != nil || got[i].Shard != event.Shard("demo", shards) {
			t.Errorf("line %d: %+v", i, got[i])
		}
	}
	if len(got[3].IDs) != 2 || got[3].IDs[1].Device != "A83F21" || len(got[5].IDs) != shards {
		t.Errorf("several: %+v %+v", got[3], got[5])
	}
	var texts string
	for _, e := range r.log.stored() {
		if e.Target == "demo" {
			texts += e.Payload
		}
	}
	if texts != "1235" || r.log.calls != 1 {
		t.Errorf("stored %q for demo, in %d calls", texts, r.log.calls)
	}
	if got[0].ID.Compare(got[2].ID) >= 0 || got[2].ID.Compare(got[7].ID) >= 0 {
		t.Errorf("IDs don't rise: %v %v %v", got[0].ID, got[2].ID, got[7].ID)
	}
	r.wantCount("stored", 5)
	r.wantCount("invalid", 2)
	r.wantCount("too_large", 1)
}

func TestOrderIsKeptWhenSomeLinesHaveAKey(t *testing.T) {
	r := newRig(t)
	var body strings.Builder
	for i := range 300 {
		idem := ""
		if i%3 == 1 {
			idem = fmt.Sprintf(`,"idem":"k%d"`, i)
		}
		fmt.Fprintf(&body, `{"device":"d%d","type":"t","text":"%d"%s}`+"\n", i%7, i, idem)
	}
	got := r.batch(body.String())
	last := map[string]event.ID{}
	for i, a := range got {
		device := fmt.Sprintf("d%d", i%7)
		if a.Error != nil || !last[device].Less(a.ID) {
			t.Fatalf("line %d: %+v after %v", i, a, last[device])
		}
		last[device] = a.ID
	}
	if len(got) != 300 {
		t.Errorf("%d answers", len(got))
	}
}

func TestBatchIsRepeatedWithItsKey(t *testing.T) {
	r := newRig(t)
	body := `{"device":"demo","type":"t","text":"1"}` + "\n" + `{"device":"demo","type":"t","text":"2","idem":"own"}` + "\n" + `bad` + "\n" + `{"device":"*","type":"t","text":"3"}` + "\n"
	first := r.batch(body, "Idempotency-Key", "b")
	second := r.batch(body, "Idempotency-Key", "b")
	for i := range first {
		if first[i].Replayed || second[i].Replayed != (i != 2) || first[i].ID != second[i].ID {
			t.Errorf("line %d: %+v, %+v", i, first[i], second[i])
		}
	}
	idems := ""
	for _, e := range r.log.stored() {
		idems += e.Idem + " "
	}
	if idems != "b#1 own b#4 b#4 b#4 b#4 " {
		t.Errorf("stored under %q", idems)
	}
	if got := r.batch(body, "Idempotency-Key", strings.Repeat("k", 255)); !got[0].is(problem.InvalidIdempotency) || got[1].Error != nil {
		t.Errorf("a key that gets too long: %+v", got)
	}
	wantProblem(t, "empty key", r.post(body, "Content-Type", "application/x-ndjson", "Idempotency-Key", ""), problem.InvalidIdempotency, "", "")
}

func TestALineOverTheLimitIsSkipped(t *testing.T) {
	r := newRig(t)
	big := `{"device":"demo","type":"t","text":"` + strings.Repeat("x", 1<<20+7000) + `"}`
	good := `{"device":"demo","type":"t","text":"1"}`
	for _, body := range []string{good + "\n" + big + "\n" + good + "\n", good + "\n" + big + "\n" + good} {
		got := r.batch(body)
		if len(got) != 3 || got[0].Error != nil || !got[1].is(problem.BodyTooLarge) || got[2].Error != nil {
			t.Errorf("%+v", got)
		}
	}
	if got := r.batch(big); len(got) != 1 || !got[0].is(problem.BodyTooLarge) {
		t.Errorf("alone: %+v", got)
	}
	if got := r.batch(""); len(got) != 0 {
		t.Errorf("an empty batch: %+v", got)
	}
}

// After the log has failed nothing more is stored: else a retry would put the
// failed events behind later ones of the same device.
func TestNothingIsStoredAfterTheLogHasFailed(t *testing.T) {
	r := newRig(t)
	bad := event.Shard("demo", shards)
	r.log.fail = map[int]error{bad: eventlog.ErrUnavailable}
	var body strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&body, `{"device":"demo","type":"t","text":"%d"}`+"\n", i)
	}
	body.WriteString(`{"device":"A83F21","type":"t","text":""}` + "\n" + `{` + "\n")
	got := r.batch(body.String())
	if len(got) != 2002 || r.log.calls != 1 || len(r.log.stored()) != 0 {
		t.Fatalf("%d answers, %d calls, %d stored", len(got), r.log.calls, len(r.log.stored()))
	}
	for i, a := range got[:2001] {
		if !a.is(problem.LogUnavailable) {
			t.Fatalf("line %d: %+v", i, a)
		}
	}
	if !got[2001].is(problem.InvalidJSON) || !strings.Contains(got[2000].Error.Detail, "earlier line") {
		t.Errorf("%+v %+v", got[2000].Error, got[2001].Error)
	}
	r.wantCount("unavailable", 2001)
}

func TestPartialFailureOfALine(t *testing.T) {
	r := newRig(t)
	r.log.fail = map[int]error{1: eventlog.ErrFull}
	got := r.batch(`{"device":"*","type":"t","text":""}`)
	if len(got) != 1 || !got[0].is(problem.LogFull) || len(got[0].Error.IDs) != 3 || len(got[0].Error.Errors) != 1 || got[0].Error.Errors[0].Shard != 1 {
		t.Errorf("%+v", got[0].Error)
	}
}

// serve starts a rig's handler on a real server, since pacing and full duplex
// are the server's.
func (r *rig) serve() *httptest.Server {
	s := httptest.NewServer(r.handler)
	r.t.Cleanup(s.Close)
	return s
}

func ndjsonRequest(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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

// dialBatch sends a chunked request by hand, to control when it reads.
func dialBatch(t *testing.T, s *httptest.Server, extra string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n%s\r\n", publish.Path, extra)
	return conn
}

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

func TestAClientThatReadsOnlyAtTheEndIsServed(t *testing.T) {
	r := newRig(t)
	conn := dialBatch(t, r.serve(), "")
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
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = 200 * time.Millisecond })
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
	conn := dialBatch(t, r.serve(), "")
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	// An error is longer than the line that it answers.
	bad := chunk(strings.Repeat("x\n", 500))
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	var err error
	for err == nil {
		_, err = io.WriteString(conn, bad)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server takes everything from a client that reads nothing")
	}
	select {
	case p := <-ended:
		if err, _ := p.(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("the batch ended with %v", p)
		}
	case <-time.After(10 * time.Second):
		t.Error("the batch goes on although nobody reads")
	}
}

func TestASlowBodyEndsInTime(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = 100 * time.Millisecond })
	s := r.serve()
	conn := dialBatch(t, s, "")
	_, _ = io.WriteString(conn, chunk(`{"device":"demo","type":"t","text":"1"}`+"\n"+`{"device":"de`))
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

// A body may take long, as long as it moves.
func TestABodyThatTricklesIsRead(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = 300 * time.Millisecond })
	conn := dialBatch(t, r.serve(), "")
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	text := `{"device":"demo","type":"t","text":"1"}` + "\n"
	for piece := range slices.Chunk([]byte(text), 5) {
		<-tick.C
		if _, err := io.WriteString(conn, chunk(string(piece))); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := replies(t, resp.Body); len(got) != 1 || got[0].Error != nil {
		t.Errorf("%+v", got)
	}
}

// While the log works, the server watches for a hang-up. A deadline that the
// body left behind would be taken for one.
func TestAReadBodyLeavesNoDeadline(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout, o.AppendTimeout = 50*time.Millisecond, 5*time.Second })
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
	conn := dialBatch(t, r.serve(), "")
	_, _ = io.WriteString(conn, chunk(`{"device":"demo","type":"t","text":"1"}`+"\n"+`{"device":"demo","type":"t","text":"2"}`))
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
	conn := dialBatch(t, r.serve(), "Expect: 100-continue\r\n")
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
	conn := dialBatch(t, s, "")
	in := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, chunk(`{"device":"demo","type":"t","text":"1"}`+"\n")+"0\r\n\r\n")
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
