package server

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestUnreadableRequestsAreSaid: whoever gets net/http's bare 400 stops for good, so
// it stands in the log, with how far the request came and what came then.
func TestUnreadableRequestsAreSaid(t *testing.T) {
	log := make(lines, 8)
	s := serve(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	for range 2 {
		c := dialConn(t, s, "GET /poll HTTP/1.1\r\nHos")
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), unreadable) {
			t.Errorf("answered %q, %v", text, err)
		}
	}
	if text := <-log; !strings.Contains(text, "couldn't be read") || !strings.Contains(text, "bytes=23 then=EOF") {
		t.Errorf("logged %q", text)
	}
	if len(log) > 0 {
		t.Errorf("then logged %q", <-log)
	}
}

// lines are what was logged.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestALateRequestIsNoWrongOne: a request whose time was up in the middle of its
// line is closed without a word, as one whose time was up behind it. With a 400 its
// client would stop for good.
func TestALateRequestIsNoWrongOne(t *testing.T) {
	const whole = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
	log := make(lines, 8)
	soon := func(o *Options) {
		o.ReadHeaderTimeout, o.Logger = 100*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
	}
	servers := map[string]*Server{
		"device": serve(t, func(o *Options) { soon(o); o.Handler = byWay("net/http") }),
		"direct": directServer(t, soon),
	}
	if runtime.GOOS == "linux" {
		servers["skim"] = skimmer(t, soon)
	}
	for name, s := range servers {
		for _, head := range []string{"G", "GET /poll?devi", "POST /v1/events HT", "GET /poll HTTP/1.1\r\nHos"} {
			if text, err := io.ReadAll(dialConn(t, s, head)); err != nil || len(text) > 0 {
				t.Errorf("%s: %q was answered %q, %v", name, head, text, err)
			}
		}
		var second net.Conn
		var answered *bufio.Reader
		for try := range attempts { // on a busy machine the time of a whole one may be up
			second = dialConn(t, s, whole)
			answered = bufio.NewReader(second)
			resp, err := http.ReadResponse(answered, nil)
			if err != nil && try < attempts-1 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			break
		}
		if _, err := io.WriteString(second, "GET /po"); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answered); err != nil || len(text) > 0 {
			t.Errorf("%s: half a second request was answered %q, %v", name, text, err)
		}
	}
	if len(log) > 0 {
		t.Errorf("logged %q", <-log)
	}
}
