package server

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// direct is a listener that answers brief requests for one path itself and
// gives everything else to net/http. A producer sends one small request after
// another over connections that it keeps, and net/http spends two thirds of what
// such a request costs: on a second reader that watches for a hang-up, on
// buffers, deadlines and headers.
//
// A request is brief if one read has brought it whole, with a JSON body of known
// length and nothing behind it. As long as a connection brings nothing else, it
// stays here; with the first other request it goes to net/http for good, with
// the bytes that were read in front. So we neither answer what is wrong nor wait
// for what is missing. Works on every system.
type direct struct {
	// Set at construction.
	limited
	opts Options
	path []byte // as a request begins

	*remainder
	*inFlight

	mu   sync.Mutex
	open map[*directConn]bool // whether it is between two requests
}

func directly(l limited, o Options) listener {
	return &direct{
		limited: l, opts: o, path: []byte(http.MethodPost + " " + o.BriefPath + " "),
		remainder: newRemainder(), inFlight: newInFlight(), open: make(map[*directConn]bool),
	}
}

// Accept returns what isn't brief.
func (d *direct) Accept() (net.Conn, error) {
	return d.remainder.accept(func() { go d.serveAll() })
}

// serveAll lets connections in until the socket is closed.
func (d *direct) serveAll() {
	for {
		c, err := d.limited.Accept()
		if err != nil {
			return
		}
		if limited, ok := c.(*limitedConn); ok { // as limited.Accept makes them
			go d.serve(newDirectConn(limited))
		}
	}
}

// Close implements net.Listener. It ends connections that are between two
// requests.
func (d *direct) Close() error {
	err := d.limited.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remainder.close()
	for c, idle := range d.open {
		if idle {
			c.close()
		}
	}
	return err
}

// drain waits for the requests in progress until ctx ends.
func (d *direct) drain(ctx context.Context) { d.inFlight.drain(ctx) }

// waits notes whether a connection is between two requests; false when none
// may follow.
func (d *direct) waits(c *directConn, yes bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.gone:
		return false
	default:
		d.open[c] = yes
		return true
	}
}

func (d *direct) forget(c *directConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
}

// serve answers a connection's requests until one isn't brief.
func (d *direct) serve(c *directConn) {
	defer d.forget(c)
	patience := d.opts.ReadHeaderTimeout
	for {
		if !d.waits(c, true) || c.conn.SetReadDeadline(time.Now().Add(patience)) != nil {
			c.close()
			return
		}
		patience = idleTimeout
		n, err := c.conn.Read(c.buf[:])
		if err != nil {
			c.close() // gone, silent for too long, or the gateway stops
			return
		}
		r := c.brief(c.buf[:n], d.path, d.opts.MaxHeaderBytes)
		if r == nil {
			d.handOver(c, c.buf[:n])
			return
		}
		if !d.waits(c, false) || !d.begin() {
			c.close()
			return
		}
		goesOn := d.answer(c, r)
		d.end()
		if !goesOn {
			c.close()
			return
		}
	}
}

// handOver gives a connection to net/http, which has yet to read its first bytes.
func (d *direct) handOver(c *directConn, first []byte) {
	// From here on Close leaves it to net/http.
	if !d.waits(c, false) || c.conn.SetReadDeadline(time.Time{}) != nil {
		c.close()
		return
	}
	c.conn.Replace(&begun{Conn: c.conn.Conn, head: bytes.Clone(first)})
	d.give(c.conn)
}

// answer passes a request to the handler and writes what it says; false if the
// connection is of no use after that.
func (d *direct) answer(c *directConn, r *http.Request) (goesOn bool) {
	defer func() {
		if p := recover(); p != nil {
			logPanic(d.opts.Logger, p)
		}
	}()
	c.reset()
	d.opts.Brief.ServeHTTP(c, r)
	return c.finish(d.opts.WriteTimeout)
}

// A directConn is a connection and the ResponseWriter of its requests, one at a
// time: everything is kept for the next one.
type directConn struct {
	conn *limitedConn
	like *http.Request // what is the same for all requests of the connection
	buf  [16 << 10]byte

	header http.Header
	status int
	body   bytes.Buffer
	out    []byte
}

func newDirectConn(c *limitedConn) *directConn {
	like := &http.Request{RemoteAddr: c.RemoteAddr().String()}
	// Its visit lasts as long as the connection: see lobby.Options.Keep.
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, c.LocalAddr())
	ctx = context.WithValue(ctx, visitKey{}, c.guest.Visit(addressOf(c.RemoteAddr())))
	like = like.WithContext(ctx)
	return &directConn{conn: c, like: like, header: make(http.Header, 8)}
}

func (c *directConn) close() { _ = c.conn.Close() } // there is nobody to tell

// brief is the request, if b holds one whole and alone, about which there is
// nothing that net/http had better decide; otherwise nil.
func (c *directConn) brief(b, path []byte, maxHeaderBytes int) *http.Request {
	if !bytes.HasPrefix(b, path) {
		return nil
	}
	if bytes.Index(b, []byte("\r\n\r\n")) > maxHeaderBytes {
		return nil
	}
	r := alone(b, c.like)
	if r == nil {
		return nil
	}
	if kind := r.Header["Content-Type"]; len(kind) != 1 || kind[0] != "application/json" {
		return nil
	}
	return r
}

// reset makes c ready for the next answer.
func (c *directConn) reset() {
	clear(c.header)
	c.status = 0
	c.body.Reset()
	if c.body.Cap() > keptBuffer {
		c.body = bytes.Buffer{}
	}
}

// keptBuffer is the largest buffer that a connection keeps for its next request.
const keptBuffer = 16 << 10

// Header implements http.ResponseWriter.
func (c *directConn) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *directConn) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

// Write implements http.ResponseWriter.
func (c *directConn) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	return c.body.Write(b)
}

// SetReadDeadline is for http.ResponseController: the body is here.
func (c *directConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController: finish sets its own.
func (c *directConn) SetWriteDeadline(time.Time) error { return nil }

// finish writes the answer; false if the connection is of no use after it.
func (c *directConn) finish(limit time.Duration) (goesOn bool) {
	c.WriteHeader(http.StatusOK)
	c.out = appendHead(c.out[:0], c.status, c.header, c.body.Len())
	c.out = append(c.out, c.body.Bytes()...)
	if c.conn.SetWriteDeadline(time.Now().Add(limit)) != nil {
		return false
	}
	_, err := c.conn.Write(c.out)
	if cap(c.out) > keptBuffer {
		c.out = nil
	}
	return err == nil && c.header.Get("Connection") != "close"
}

// appendHead appends a status line and a header (RFC 9112 §2.1).
func appendHead(b []byte, status int, header http.Header, length int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	for name, values := range header {
		for _, v := range values {
			b = append(b, "\r\n"...)
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, oneLine(v)...)
		}
	}
	b = append(b, "\r\nDate: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(length), 10)
	return append(b, "\r\n\r\n"...)
}
