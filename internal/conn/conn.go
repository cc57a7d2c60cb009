// Package conn owns the bytes between a stream and its socket: writing, the
// rhythm of keep-alives, time limits and hang-ups. It knows neither sessions
// nor events. Its invariant: a peer that takes nothing for the write time limit
// costs a bounded amount of memory, and is then gone.
//
// There are two drivers. Light takes plain HTTP/1.1 connections over, so that
// an idle one costs no goroutine, no buffer and no timer. Ordinary keeps a
// goroutine for each request and serves everything that net/http does. Both
// pass the same tests.
package conn

import (
	"context"
	"errors"
	"net/http"
)

// How a connection ends without the stream's wish.
var (
	// ErrGone: the peer closed, half-closed or vanished.
	ErrGone = errors.New("the client is gone")
	// ErrStalled: the peer took nothing for the write time limit.
	ErrStalled = errors.New("the client took nothing for write_timeout")
	// ErrUnexpected: the peer sent more than its request. Whatever it believes
	// to be talking to, it isn't this.
	ErrUnexpected = errors.New("the client sent bytes after its request")
	// ErrTransport: the transport can't stream.
	ErrTransport = errors.New("the transport can't stream")
	// ErrCut: the driver was closed before the connection had ended.
	ErrCut = errors.New("the gateway didn't wait any longer")
)

// A Stream is what a connection writes. One goroutine at a time calls it.
type Stream interface {
	// Next appends the frames that are due to dst, about maxBytes at most, and
	// less only if there are no more. The slices are shared: they are only read.
	Next(dst [][]byte, maxBytes int) [][]byte
	// KeepAlive is what to write when nothing was written for a while.
	KeepAlive() []byte
	// End is the last thing to write, once over.
	End() (last []byte, over bool)
	// Closed is told once, last: nil after a written end, else one of the
	// errors above.
	Closed(err error)
}

// A Conn is one connection of a driver.
type Conn interface {
	// Wake says that Next or End has news. It doesn't block and may be called
	// at any time, from any goroutine.
	Wake()
	// Peer is the address of the other end and the protocol, for people. It may
	// be called at any time, from any goroutine; empty before Serve and after
	// the end.
	Peer() (address, protocol string)
	// Serve answers the request with 200, the headers that are set, first, and
	// then the stream. It may return before the stream is closed.
	Serve(w http.ResponseWriter, r *http.Request, first []byte, s Stream)
}

// A Driver makes connections. Safe for concurrent use.
type Driver interface {
	// New makes the connection of a request that is served later, so that its
	// stream can be joined to a source before the first byte is written.
	New(r *http.Request) Conn
	// Close waits until the connections that were taken over have ended, cuts
	// with ErrCut those that haven't when ctx ends, and frees what the driver
	// holds. No connection may be served from then on.
	Close(ctx context.Context)
}
