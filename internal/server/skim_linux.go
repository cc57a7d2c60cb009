package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"downlink/internal/lobby"
	"downlink/internal/peer"
)

// skim is a listener that answers plain requests for a stream itself and gives
// everything else to net/http. A crowd that comes back at once asks for nothing
// but streams, and net/http spends as much on taking such a connection in as
// everything else together: a goroutine with its stack, two buffers, and a
// place in Go's poller that is given up right after.
//
// What is plain is narrow on purpose: one read has brought one complete
// HTTP/1.1 request, for the stream's path, with nothing behind it. Whatever
// isn't so gets to net/http with its first bytes. The kernel holds connections
// back until there is something to read (TCP_DEFER_ACCEPT).
type skim struct {
	// Set at construction.
	limited
	path    string
	handler http.Handler
	log     *slog.Logger
	file    *os.File // the listening socket again, watched by Go's poller
	raw     syscall.RawConn
	proxies peer.Proxies

	accepting atomic.Int32 // goroutines that accept, or will at once

	*remainder
	*inFlight
}

// skimming makes a listener that serves streams itself; without a handler for
// them it is l as it is.
func skimming(l limited, o Options) (listener, error) {
	tcp, ok := l.Listener.(*net.TCPListener)
	if !ok || o.Stream == nil {
		return l, nil
	}
	file, err := tcp.File()
	if err != nil {
		return nil, err
	}
	s := &skim{
		limited: l, path: o.StreamPath, handler: o.Stream, log: o.Logger, file: file,
		proxies: o.Lobby.Proxies, remainder: newRemainder(), inFlight: newInFlight(),
	}
	if s.raw, err = file.SyscallConn(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// Close implements net.Listener.
func (s *skim) Close() error {
	s.remainder.close()
	return errors.Join(s.file.Close(), s.limited.Close())
}

// drain waits for the requests in progress until ctx ends.
func (s *skim) drain(ctx context.Context) { s.inFlight.drain(ctx) }

// Accept returns what isn't plain.
func (s *skim) Accept() (net.Conn, error) {
	return s.remainder.accept(func() {
		s.accepting.Add(1)
		go s.serveAll()
	})
}

// An attendant is what one goroutine that accepts works with.
type attendant struct {
	buf    [4 << 10]byte // as large as net/http's: it takes what we hand over in one read
	header http.Header
	like   *http.Request // what is the same for all requests
	at     atVisit       // the context of like

	// The connection that was accepted last, or what went wrong, and the ways to
	// get there: kept, or each connection would cost their memory anew.
	fd    int
	from  netip.AddrPort
	err   error
	there bool
	look  func(listener uintptr)
	wait  func(listener uintptr) bool
}

// atVisit is the context of one request after the other.
type atVisit struct {
	context.Context
	visit *lobby.Visit
}

func (c *atVisit) Value(key any) any {
	if key == (visitKey{}) {
		return c.visit
	}
	return c.Context.Value(key)
}

func newAttendant() *attendant {
	a := &attendant{header: make(http.Header, 8), at: atVisit{Context: context.Background()}}
	a.like = new(http.Request).WithContext(&a.at)
	a.look = func(listener uintptr) { a.there = a.accept(listener) }
	a.wait = a.accept
	return a
}

// accept takes a connection from the socket; false if there is none.
func (a *attendant) accept(listener uintptr) bool {
	for {
		var from syscall.Sockaddr
		// Not unix.Accept4: that asks the system about the socket once more.
		a.fd, from, a.err = syscall.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(a.err, unix.EINTR) || errors.Is(a.err, unix.ECONNABORTED) {
			continue
		}
		a.from = address(from)
		return !errors.Is(a.err, unix.EAGAIN)
	}
}

// serveAll accepts connections and serves what is plain, one after the other.
// Before it serves it sees to it that somebody accepts meanwhile: so a crowd
// is taken in without handing each connection to another goroutine, and nobody
// waits for a handler that waits. What it hands over it hands over first: so
// few connections at a time are on the way to where they can be cut.
func (s *skim) serveAll() {
	a := newAttendant()
	for failed := 0; ; {
		if err := s.accept(a); err != nil {
			if !s.overcome(err, failed) {
				return
			}
			failed++
			continue
		}
		failed = 0
		r, guest := s.welcome(a)
		if r == nil {
			continue
		}
		if s.accepting.Add(-1) == 0 {
			s.accepting.Add(1)
			go s.serveAll()
		}
		s.serve(&skimmed{fd: a.fd, guest: guest, header: a.header}, r)
		clear(a.header)
		if s.accepting.Add(1) > maxAccepting {
			s.accepting.Add(-1)
			return
		}
	}
}

// welcome reads a connection's request, if it is plain. Nil: the connection was
// handed over, or closed.
func (s *skim) welcome(a *attendant) (*http.Request, *lobby.Guest) {
	guest := s.lobby.Arrive(a.from.Addr())
	if guest == nil {
		unix.Close(a.fd) //nolint:errcheck // nothing was promised
		return nil, nil
	}
	n, _ := unix.Read(a.fd, a.buf[:]) // an error comes again, to whoever reads next
	head := a.buf[:max(n, 0)]
	if r := s.plain(head, a.like); r != nil && s.begin() {
		r.RemoteAddr = a.from.String()
		a.at.visit = visit(guest, s.proxies, r)
		return r, guest
	}
	whole := bytes.Contains(head, []byte("\r\n\r\n"))
	if whole {
		guest.Reach(lobby.Asked)
	}
	c, err := s.handOver(a.fd, head, whole)
	if err != nil {
		guest.Leave()
		return nil, nil // the client is gone
	}
	s.give(s.seat(c, guest))
	return nil, nil
}

// accept lets the next connection come. It waits only if there is none:
// waiting is for one goroutine at a time.
func (s *skim) accept(a *attendant) error {
	a.there = false
	closed := s.raw.Control(a.look)
	if closed == nil && !a.there {
		closed = s.raw.Read(a.wait)
	}
	if closed != nil {
		return net.ErrClosed
	}
	if a.err != nil {
		return &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", a.err)}
	}
	return nil
}

// plain is the request, if head holds one for a stream, whole and alone, about
// which there is nothing that net/http had better decide; otherwise nil.
func (s *skim) plain(head []byte, like *http.Request) *http.Request {
	rest, ok := bytes.CutPrefix(head, []byte("GET "+s.path))
	if !ok || len(rest) == 0 || (rest[0] != '?' && rest[0] != ' ') {
		return nil
	}
	r := alone(head, like)
	if r == nil || r.Body != http.NoBody || r.Header["Content-Length"] != nil {
		return nil
	}
	return r
}

// maxHandOver is how often handing over a whole request is tried again without
// descriptors: for about a quarter of a second. What isn't whole gives its own
// descriptor up at once, or several that need a second one would wait for each
// other.
const maxHandOver = 8

// handOver makes a connection for net/http, which has yet to read head.
func (s *skim) handOver(fd int, head []byte, whole bool) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	c, err := net.FileConn(f) // a second descriptor, for a moment
	for failed := 0; whole && outOfDescriptors(err) && failed < maxHandOver && s.overcome(err, failed); failed++ {
		c, err = net.FileConn(f)
	}
	if err != nil {
		return nil, err
	}
	if len(head) == 0 {
		return c, nil
	}
	return &begun{Conn: c, head: bytes.Clone(head)}, nil
}

// serve answers one request.
func (s *skim) serve(c *skimmed, r *http.Request) {
	defer s.end()
	defer c.finish()
	defer func() {
		if p := recover(); p != nil && logPanic(s.log, p) {
			c.body.Reset()
		}
	}()
	s.handler.ServeHTTP(c, r)
}

// address is where a connection comes from.
func address(from syscall.Sockaddr) netip.AddrPort {
	switch a := from.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)) //nolint:gosec // a port
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)) //nolint:gosec // a port
	default:
		return netip.AddrPort{}
	}
}

// skimmed is the ResponseWriter of a request that net/http never saw. Most are
// taken by a stream before anything is written; an answer that isn't a stream
// is collected, and ends the connection.
type skimmed struct {
	fd     int
	guest  *lobby.Guest
	taken  bool
	header http.Header
	status int
	body   bytes.Buffer
}

// Take hands the connection over: from now on the descriptor is the caller's to
// close, who then calls release.
func (c *skimmed) Take() (fd int, release func()) {
	c.taken = true
	return c.fd, c.guest.Take()
}

// Header implements http.ResponseWriter.
func (c *skimmed) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *skimmed) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

// Write implements http.ResponseWriter.
func (c *skimmed) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	return c.body.Write(b)
}

// SetWriteDeadline is for http.ResponseController. Nothing here waits.
func (c *skimmed) SetWriteDeadline(time.Time) error { return nil }

// finish sends what was collected. It fits into the empty buffer of a socket
// that nothing was written to yet, so nobody waits for the client.
func (c *skimmed) finish() {
	if c.taken {
		return
	}
	defer c.guest.Take()()
	defer unix.Close(c.fd) //nolint:errcheck // nothing depends on it
	if c.status == 0 && c.body.Len() == 0 {
		return
	}
	resp := http.Response{
		StatusCode: c.status, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: c.Header(), Body: io.NopCloser(&c.body), ContentLength: int64(c.body.Len()),
	}
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var out bytes.Buffer
	_ = resp.Write(&out) // a buffer takes everything
	_, _ = unix.Write(c.fd, out.Bytes())
	c.swallow()
}

// swallow reads what came after the request: a socket that is closed with
// something unread resets its connection, which takes the answer with it.
func (c *skimmed) swallow() {
	var b [1 << 10]byte
	for range maxSwallowed / len(b) {
		if n, _ := unix.Read(c.fd, b[:]); n <= 0 {
			return
		}
	}
}

// maxSwallowed bytes are read; a client that has more to say isn't listening.
const maxSwallowed = 64 << 10
