package server

import (
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
)

// What skim and direct have in common: they answer only what they understand
// at once, and net/http goes on with the rest.

// A remainder is what a listener that answers some requests itself leaves to
// net/http, which asks for it as for connections. Safe for concurrent use.
type remainder struct {
	conns chan net.Conn
	gone  chan struct{} // closed by close

	beginning, ending sync.Once
}

func newRemainder() *remainder {
	return &remainder{conns: make(chan net.Conn), gone: make(chan struct{})}
}

// accept waits for what is given; begin is called first, once.
func (r *remainder) accept(begin func()) (net.Conn, error) {
	r.beginning.Do(begin)
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.gone:
		return nil, net.ErrClosed
	}
}

// give hands a connection to net/http, or closes it if nobody asks any more.
func (r *remainder) give(c net.Conn) {
	select {
	case r.conns <- c:
	case <-r.gone:
		_ = c.Close() // nothing was promised
	}
}

func (r *remainder) close() { r.ending.Do(func() { close(r.gone) }) }

// logPanic logs what a handler panicked with, unless it only wanted to abort its
// answer (http.ErrAbortHandler); it reports whether it did.
func logPanic(log *slog.Logger, p any) bool {
	if p == http.ErrAbortHandler { //nolint:errorlint // compared as net/http does
		return false
	}
	log.Error("answering a request panicked; its connection is closed", "panic", p, "stack", string(debug.Stack()))
	return true
}

// oneLine is a header's value without line ends, which would let it end the
// header (RFC 9110 §5.5).
func oneLine(value string) string {
	if !strings.ContainsAny(value, "\r\n") {
		return value
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
}

// begun is a connection whose first bytes have been read.
type begun struct {
	net.Conn
	head []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.head) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.head)
	if b.head = b.head[n:]; len(b.head) == 0 {
		b.head = nil
	}
	return n, nil
}

// CloseWrite lets net/http end a refused request without cutting its answer.
func (b *begun) CloseWrite() error {
	if h, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
