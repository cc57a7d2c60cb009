package redislog

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// A writer is the connection on which appends go out, one round trip at a
// time. Whoever does a round trip writes and reads by itself: with a goroutine
// for writing and one for reading in between, as the client has them
// elsewhere, waking them costs more than the append, as long as the load is
// low. But nobody reads between two round trips, so a connection that was lost
// meanwhile has to be looked for.
type writer struct {
	// Set at construction.
	client rueidis.Client
	base   context.Context // of the node

	// Guarded by mu.
	mu    sync.Mutex
	asked bool      // a round trip is under way
	heard time.Time // when the last one ended
	conn  net.Conn  // the last one that was made
	dials int       // how many were made
}

// justHeard is for how long after a round trip a connection is believed in: to
// look costs a fortieth of an append, and who loses one in so short a time is
// hardly there again to take the next.
const justHeard = 10 * time.Millisecond

var errNotAsked = errors.New("no append needs a connection yet")

func newWriter(base context.Context, o rueidis.ClientOption) *writer {
	w := &writer{base: base}
	o.DisableAutoPipelining = true
	o.AlwaysPipelining = false
	o.DialCtxFn = w.dial
	// It fails, because nobody has asked; a connection that is made now would
	// be one that the round trips don't use.
	w.client = newClient(o)
	return w
}

// dial makes a connection as the client would.
func (w *writer) dial(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	if !asked {
		return nil, errNotAsked
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.base, cancel)()
	if conn, err = dialAs(ctx, addr, d, secure); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil { // cut couldn't reach it
		_ = conn.Close() // nothing was sent yet
		return nil, err
	}
	w.conn = conn
	w.dials++
	return conn, nil
}

// do does one round trip; never two at a time. It ends with ctx's deadline by
// itself, and with ctx if that is what calls cut.
func (w *writer) do(ctx context.Context, cmds []rueidis.Completed) []rueidis.RedisResult {
	if w.ask() {
		// The client notices it by a command that can't be sent any more; better
		// by this one than by an append, of which nobody could tell.
		_ = w.client.Do(ctx, w.client.B().Ping().Build()).Error()
	}
	var replies []rueidis.RedisResult
	if len(cmds) == 1 {
		replies = []rueidis.RedisResult{w.client.Do(ctx, cmds[0])}
	} else {
		replies = w.client.DoMulti(ctx, cmds...)
	}
	w.mu.Lock()
	w.asked, w.heard = false, time.Now()
	w.mu.Unlock()
	return replies
}

// ask begins a round trip, and reports whether the connection was lost since
// the last one.
func (w *writer) ask() (lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = true
	if w.conn == nil || time.Since(w.heard) < justHeard || !hungUp(w.conn) {
		return false
	}
	_ = w.conn.Close() // it is lost
	w.conn = nil
	return true
}

// made is how many connections were made so far.
func (w *writer) made() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// cut ends the round trip that is under way.
func (w *writer) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked && w.conn != nil {
		_ = w.conn.Close() // its reader gets the error
	}
}

// close ends everything; base has ended before.
func (w *writer) close() {
	w.cut()
	w.client.Close()
}

// hungUp reports whether the other end has closed a connection, or said
// something unasked, which could be taken for the next reply; below TLS it may
// be a session ticket. It waits for nothing.
func hungUp(conn net.Conn) (gone bool) {
	secure, isTLS := conn.(*tls.Conn)
	if isTLS {
		conn = secure.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false // closed by us: the client knows
	}
	_ = raw.Control(func(fd uintptr) { // fails for one closed by us, too
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = (err == nil && (n == 0 || !isTLS)) || (err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR))
	})
	return gone
}
