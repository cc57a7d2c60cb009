package producer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"downlink/internal/event"
	"downlink/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// publish sends payloads to device d and returns what became of each.
func publish(t *testing.T, s Sender, payloads ...string) ([]Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	events := make([]Event, len(payloads))
	for i, p := range payloads {
		events[i] = Event{Device: `d"é`, Payload: []byte(p)}
	}
	outcomes := make([]Outcome, len(events))
	err := s.Publish(ctx, events, outcomes)
	return outcomes, err
}

func handle(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func made(t *testing.T, s Sender, err error) Sender {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestBackendSendsWhatTheContractSays(t *testing.T) {
	connections := map[string]bool{}
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		body, _ := io.ReadAll(r.Body)
		var e struct {
			Device, Type string
			Payload      map[string]int
		}
		if err := json.Unmarshal(body, &e); err != nil || e.Device != `d"é` || e.Type == "" || len(e.Payload) != 1 || r.URL.Path != "/x/v1/events" || r.Method != "POST" || r.Header.Get("Authorization") != "Bearer t" {
			t.Errorf("%s %s %s: %v", r.Method, r.URL, body, err)
		}
		switch e.Payload["n"] {
		case 1:
			fmt.Fprint(w, `{"id":"1-0","shard":1}`)
		case 2:
			w.(http.Flusher).Flush() // chunked
			fmt.Fprint(w, `{"id":"2-0",`)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, `"shard":1}`)
		case 3:
			http.Error(w, "no", http.StatusRequestEntityTooLarge)
		case 4:
			http.Error(w, "later", http.StatusServiceUnavailable)
		case 5:
			w.WriteHeader(204)
		}
	})
	sender, err := NewBackend(url+"/x/", false, "Authorization: Bearer t")
	s := made(t, sender, err)
	for n, want := range map[int]Outcome{1: Accepted, 2: Accepted, 3: Refused, 4: Unknown, 5: Accepted} {
		got, err := publish(t, s, fmt.Sprintf(`{"n":%d}`, n))
		if got[0] != want || (want == Accepted) != (err == nil) {
			t.Errorf("%d: %v %v, want %v", n, got, err, want)
		}
	}
	if len(connections) != 1 {
		t.Errorf("%d connections for 5 requests", len(connections))
	}
}

func TestBatchesHaveAnAnswerALine(t *testing.T) {
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		lines := 0
		body, _ := io.ReadAll(r.Body)
		for range strings.Lines(string(body)) {
			lines++
		}
		if r.Header.Get("Content-Type") != "application/x-ndjson" || lines != 5 {
			t.Errorf("%s: %d lines", r.Header.Get("Content-Type"), lines)
		}
		fmt.Fprint(w, `{"id":"1-0"}`+"\n"+`{"error":{"status":413,"title":"too large"}}`+"\n"+`{"error":{"status":503}}`+"\n"+`{"ids":[]}`+"\n")
	})
	sender, err := NewBackend(url, true)
	got, err := publish(t, made(t, sender, err), "{}", "{}", "{}", "{}", "{}")
	if diff := cmp.Diff([]Outcome{Accepted, Refused, Unknown, Accepted, Unknown}, got); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}

// TestNoAnswer: what may have arrived is unknown, what can't have is refused,
// and the next request has a new connection.
func TestNoAnswer(t *testing.T) {
	first := true
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Connection", "close")
	})
	sender, err := NewBackend(url, false)
	s := made(t, sender, err)
	if got, err := publish(t, s, "{}"); got[0] != Unknown || err == nil {
		t.Errorf("cut off: %v %v", got, err)
	}
	for range 2 {
		if got, err := publish(t, s, "{}"); got[0] != Accepted || err != nil {
			t.Errorf("after that: %v %v", got, err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	sender, err = NewBackend("http://"+ln.Addr().String(), false)
	if got, err := publish(t, made(t, sender, err), "{}"); got[0] != Refused || err == nil {
		t.Errorf("nobody there: %v %v", got, err)
	}
}

func TestAnswersThatCantBeRead(t *testing.T) {
	for _, answer := range []string{
		"SSH-2.0\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", strings.Repeat("x", 100_000),
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, 1000))
			fmt.Fprint(c, answer)
		}()
		sender, err := NewBackend("http://"+ln.Addr().String(), false)
		got, err := publish(t, made(t, sender, err), "{}")
		if got[0] != Unknown || err == nil {
			t.Errorf("%.40q: %v %v", answer, got, err)
		}
		ln.Close()
		<-done
	}
}

func TestAnyAPI(t *testing.T) {
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		got := []string{r.URL.Query().Get("id"), r.Header.Get("X-Key"), user, password, string(body)}
		want := []string{`d"é`, "a: b", "u", "p", `{"c":"d\"é","d":{"n":1},"s":"{\"n\":1}"}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	sender, err := Foreign{
		URL:     strings.Replace(url, "://", "://u:p@", 1) + "?id={device}",
		Body:    `{"c":"{device}","d":{payload},"s":"{payload_string}"}`,
		Headers: []string{"X-Key: a: b"},
	}.New()
	if got, err := publish(t, made(t, sender, err), `{"n":1}`); got[0] != Accepted || err != nil {
		t.Errorf("%v %v", got, err)
	}
	for _, f := range []Foreign{
		{URL: "ftp://h"}, {URL: "http://h/{n}"}, {URL: "http://h/a b"}, {URL: "http://h", Body: "{what}"},
		{URL: "http://h", Headers: []string{"nonsense"}}, {URL: "http://h", Headers: []string{"A: b\r\nC: d"}},
	} {
		if s, err := f.New(); err == nil {
			t.Errorf("%+v was taken for %+v", f, s)
		}
	}
}

func TestRedis(t *testing.T) {
	r := testkit.StartRedis(t)
	sender, err := NewRedis(r.URL(), "p", 4)
	s := made(t, sender, err)
	got, err := publish(t, s, `{"n":1}`, `{"n":2}`)
	if err != nil || got[0] != Accepted || got[1] != Accepted {
		t.Fatalf("%v %v", got, err)
	}
	outcomes := make([]Outcome, 1)
	if err := s.Publish(context.Background(), []Event{{Device: "*", Payload: []byte("{}")}}, outcomes); err != nil || outcomes[0] != Accepted {
		t.Fatalf("%v %v", outcomes, err)
	}
	own := event.Shard(`d"é`, 4)
	for shard := range 4 {
		want := "1"
		if shard == own {
			want = "3"
		}
		if n := r.Do("XLEN", fmt.Sprintf("p:%d", shard)); fmt.Sprint(n) != want {
			t.Errorf("shard %d has %v entries, want %s", shard, n, want)
		}
	}
	entries := fmt.Sprint(r.Do("XRANGE", fmt.Sprintf("p:%d", own), "-", "+", "COUNT", "1"))
	for _, word := range []string{"dev", `d"é`, "type", "payload", `{"n":1}`} {
		if !strings.Contains(entries, word) {
			t.Errorf("no %s in %s", word, entries)
		}
	}
	r.Do("SET", "p:"+fmt.Sprint(own), "not a stream")
	if got, err := publish(t, s, "{}", "{}"); got[0] != Refused || got[1] != Refused || err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("%v %v", got, err)
	}
}

func TestRedisKeepsItsSecret(t *testing.T) {
	r := testkit.StartRedis(t)
	sender, err := NewRedis(strings.Replace(r.URL(), "://", "://u:hunter2@", 1), "p", 4)
	got, err := publish(t, made(t, sender, err), "{}")
	if got[0] != Refused || err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v %v", got, err)
	}
	for _, url := range []string{"", "http://h", "redis+cluster://h", "redis://a,redis://b", "redis://a:1,b:2", "redis://h/x", "redis://:hunter2@h:port"} {
		if _, err := NewRedis(url, "p", 4); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := NewRedis("redis://h", "p", 0); err == nil {
		t.Error("no shards were allowed")
	}
}

// FuzzAnswer: no answer makes the client panic or hang, and none that isn't a
// whole response is taken for one.
func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2;a\r\nok\r\n0\r\nA: b\r\n\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		c := &caller{}
		c.reset(strings.NewReader(answer))
		status, err := c.readAnswer()
		if err == nil && (status < 200 || !strings.HasPrefix(answer, "HTTP/1.")) {
			t.Errorf("%q was taken for an answer %d", answer, status)
		}
		if errors.Is(err, io.EOF) {
			t.Error("an EOF isn't told in words")
		}
	})
}
