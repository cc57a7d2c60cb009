package chaos

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"

	"downlink/internal/event"
)

// A tap looks at what a gateway sends before the client drops what it has
// finished already: inside a response, IDs must rise from the cursor on.
type tap struct {
	*http.Transport
	device string
	fault  func(format string, args ...any)
}

// RoundTrip implements http.RoundTripper.
func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	var conn httptrace.GotConnInfo
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { conn = got }}
	resp, err := t.Transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err == nil && resp.StatusCode == http.StatusBadRequest {
		t.fault("%s: %s with %v was answered 400 with %v; its connection was used before: %t, and idle for %v",
			t.device, req.URL, req.Header, resp.Header, conn.Reused, conn.IdleTime)
	}
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		return resp, err
	}
	cursor, _ := event.ParseID(req.Header.Get("Last-Event-ID")) // no cursor: below all IDs
	resp.Body = &tapped{ReadCloser: resp.Body, tap: t, at: cursor}
	return resp, err
}

type tapped struct {
	io.ReadCloser
	tap  *tap
	at   event.ID
	line []byte
	// Of the block that is being read.
	id            event.ID
	named, resync bool
	dispatched    bool
}

// Read implements io.Reader.
func (t *tapped) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		t.line = append(t.line, part...)
		if rest = after; ended {
			t.take()
			t.line = t.line[:0]
		}
	}
	return n, err
}

// take takes one line.
func (t *tapped) take() {
	if len(t.line) == 0 {
		t.block()
		return
	}
	if text, ok := bytes.CutPrefix(t.line, []byte("id: ")); ok {
		id, err := event.ParseID(string(text))
		if err != nil {
			t.tap.fault("%s: the gateway sent the ID %q", t.tap.device, text)
		}
		t.id, t.named = id, true
	}
	t.resync = t.resync || string(t.line) == "event: resync"
	t.dispatched = t.dispatched || bytes.HasPrefix(t.line, []byte("data:"))
}

// block takes the end of a block.
func (t *tapped) block() {
	switch {
	case !t.named:
	case t.resync: // another branch of the log may be below
		t.at = t.id
	case t.id.Less(t.at), t.dispatched && t.id == t.at:
		t.tap.fault("%s: the gateway sent %s after %s", t.tap.device, t.id, t.at)
	default:
		t.at = t.id
	}
	t.named, t.resync, t.dispatched = false, false, false
}
