package server

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
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
