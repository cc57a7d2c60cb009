package testkit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience is how long a condition may take before its test fails. It guards
// against hangs; no speed is judged by it, and a slow machine may need much of it.
const patience = 2 * time.Minute

// Eventually waits until a condition holds.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			if !ok() { // the last look may have been long ago
				tb.Fatalf("waited in vain: %s", what)
			}
			return
		case <-tick.C:
		}
	}
}

// Get is the status and body of a GET; a failed one has status 0.
func Get(tb testing.TB, url string) (status int, body string) {
	tb.Helper()
	return exchange(tb, http.MethodGet, url, "", "")
}

// Post publishes a body and returns status and answer.
func Post(tb testing.TB, url, contentType, body string) (status int, answer string) {
	tb.Helper()
	return exchange(tb, http.MethodPost, url, contentType, body)
}

func exchange(tb testing.TB, method, url, contentType, body string) (int, string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Close = true // leaves no connection behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// A Stream is a raw event stream, line by line.
type Stream struct {
	Header http.Header
	Status int
	tb     testing.TB
	body   *bufio.Reader
	Close  func()
}

// Open opens an event stream; cursor may be empty. It is closed when the test
// ends.
func Open(tb testing.TB, url, cursor string) *Stream {
	tb.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	return Send(tb, &http.Transport{DisableKeepAlives: true}, req)
}

// Send opens an event stream by a request of any kind. It is closed when the
// test ends.
func Send(tb testing.TB, transport *http.Transport, req *http.Request) *Stream {
	tb.Helper()
	ctx, cancel := context.WithCancel(req.Context())
	tb.Cleanup(func() {
		cancel()
		transport.CloseIdleConnections()
	})
	resp, err := (&http.Client{Transport: transport}).Do(req.WithContext(ctx))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { resp.Body.Close() })
	return &Stream{Header: resp.Header, Status: resp.StatusCode, tb: tb, body: bufio.NewReader(resp.Body), Close: func() {
		cancel()
		resp.Body.Close()
	}}
}

// RawStream is the stream on a connection over which a request was sent; it
// begins with the response's header.
func RawStream(tb testing.TB, conn net.Conn) *Stream {
	tb.Helper()
	tb.Cleanup(func() { conn.Close() })
	return &Stream{tb: tb, body: bufio.NewReader(conn), Close: func() { conn.Close() }}
}

// Line is the next line without its end; ok is false at the end of the stream.
func (s *Stream) Line() (line string, ok bool) {
	text, err := s.body.ReadString('\n')
	return strings.TrimSuffix(text, "\n"), err == nil
}

// Until reads up to a line with the given start and returns all that it read.
func (s *Stream) Until(start string) string {
	s.tb.Helper()
	timer := time.AfterFunc(patience, s.Close)
	defer timer.Stop()
	var all strings.Builder
	for {
		line, ok := s.Line()
		if !ok {
			s.tb.Fatalf("the stream ended without a line that begins with %q; it had:\n%s", start, all.String())
		}
		all.WriteString(line + "\n")
		if strings.HasPrefix(line, start) {
			return all.String()
		}
	}
}

// Rest reads to the end of the stream.
func (s *Stream) Rest() string {
	s.tb.Helper()
	timer := time.AfterFunc(patience, s.Close)
	defer timer.Stop()
	rest, err := io.ReadAll(s.body)
	if err != nil {
		s.tb.Errorf("reading to the end of the stream: %v", err)
	}
	return string(rest)
}
