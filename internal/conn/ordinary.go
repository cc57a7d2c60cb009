package conn

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"
)

// Ordinary is the driver on net/http: HTTP/1.1, HTTP/2 with and without TLS,
// HTTP/1.0; one goroutine a connection.
type Ordinary struct {
	KeepAlive    time.Duration // written after so long without traffic
	WriteTimeout time.Duration // ErrStalled when the peer takes nothing for so long
}

const (
	// gather is how many bytes are asked of a stream at a time.
	gather = 64 << 10
	// chunk is how many bytes are written under one deadline. It is small
	// because a slow peer is not a dead one: the limit is for taking nothing.
	chunk = 8 << 10
)

// New makes a connection.
func (o Ordinary) New(r *http.Request) Conn {
	return &ordinary{opts: o, request: r, wake: make(chan struct{}, 1)}
}

// Close does nothing: net/http keeps its connections, and stopping it ends them.
func (o Ordinary) Close(context.Context) {}

type ordinary struct {
	opts    Ordinary
	request *http.Request
	wake    chan struct{}
}

// Wake implements Conn.
func (c *ordinary) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Peer implements Conn.
func (c *ordinary) Peer() (address, protocol string) {
	return c.request.RemoteAddr, spoken(c.request.Proto, c.request.TLS != nil)
}

// spoken names what a connection speaks.
func spoken(protocol string, secured bool) string {
	if secured {
		return protocol + ", TLS"
	}
	return protocol
}

// Serve implements Conn. It returns when the stream is closed.
func (c *ordinary) Serve(w http.ResponseWriter, r *http.Request, first []byte, s Stream) {
	out := &writer{w: w, rc: http.NewResponseController(w), request: r, limit: c.opts.WriteTimeout}
	w.WriteHeader(http.StatusOK)
	s.Closed(c.run(r.Context(), out, first, s))
}

// run writes what is ready, flushes, and only then waits.
func (c *ordinary) run(ctx context.Context, out *writer, first []byte, s Stream) error {
	if err := out.write(first); err != nil {
		return err
	}
	idle := time.NewTimer(c.opts.KeepAlive)
	defer idle.Stop()
	var frames [][]byte
	for {
		if last, over := s.End(); over {
			return errors.Join(out.write(last), out.flush(), out.part())
		}
		if ctx.Err() != nil {
			return ErrGone
		}
		if frames = s.Next(frames[:0], gather); len(frames) > 0 {
			if err := out.writeAll(frames); err != nil {
				return err
			}
			continue
		}
		frames = nil // an idle connection holds no buffer
		if err := out.flush(); err != nil {
			return err
		}
		if out.wrote {
			out.wrote = false
			idle.Reset(c.opts.KeepAlive)
		}
		select {
		case <-ctx.Done():
			return ErrGone
		case <-c.wake:
		case <-idle.C:
			if err := out.write(s.KeepAlive()); err != nil {
				return err
			}
		}
	}
}

// writer writes under a deadline that each chunk renews.
type writer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	request *http.Request
	limit   time.Duration
	wrote   bool // since the caller last looked
	dirty   bool // something waits for a flush
}

func (o *writer) writeAll(frames [][]byte) error {
	for _, f := range frames {
		if err := o.write(f); err != nil {
			return err
		}
	}
	return nil
}

func (o *writer) write(b []byte) error {
	o.wrote, o.dirty = true, true
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		b = b[len(part):]
		if err := o.limited(func() error {
			_, err := o.w.Write(part)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// flush sends what was written, and lifts the deadline: on HTTP/2 one that
// passes while the stream is idle would reset it.
func (o *writer) flush() error {
	if !o.dirty {
		return nil
	}
	o.dirty = false
	if err := o.limited(o.rc.Flush); err != nil {
		return err
	}
	return transport(o.rc.SetWriteDeadline(time.Time{}))
}

// part ends the connection with the stream: on one that is kept its device would
// come back to this gateway, past any balancer, and a gateway that lets its
// devices go keeps them. HTTP/2 carries other streams, and stays.
func (o *writer) part() error {
	if o.request.ProtoMajor != 1 {
		return nil
	}
	conn, buffered, err := o.rc.Hijack()
	if errors.Is(err, http.ErrNotSupported) {
		return nil // whoever is between keeps the connection
	}
	if err != nil {
		return transport(err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(o.limit)); err != nil {
		return transport(err)
	}
	if o.request.ProtoAtLeast(1, 1) {
		_, _ = buffered.WriteString(lastChunk) // Flush says what became of it
	}
	if buffered.Flush() != nil {
		return ErrGone
	}
	return nil
}

// lastChunk ends a body whose length nobody knew (RFC 9112, 7.1).
const lastChunk = "0\r\n\r\n"

func (o *writer) limited(write func() error) error {
	deadline := time.Now().Add(o.limit)
	if err := o.rc.SetWriteDeadline(deadline); err != nil {
		return transport(err)
	}
	err := write()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, http.ErrNotSupported):
		return transport(err)
	case errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline):
		return ErrStalled // HTTP/2 reports a passed deadline as a closed stream
	default:
		return ErrGone
	}
}

func transport(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, http.ErrNotSupported):
		return errors.Join(ErrTransport, err)
	default:
		return ErrGone // the connection was closed under us
	}
}
