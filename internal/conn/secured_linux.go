package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// secured is TLS over a connection that was taken over: crypto/tls goes on
// where the handshake left it, but what it writes is only collected, and what
// it reads is what the socket has. It is the net.Conn under the tls.Conn, and
// belongs to whoever runs the connection, like the rest of it.
type secured struct {
	net.Conn // the closed one: its addresses are still asked for
	tls      *tls.Conn
	fd       int
	sealed   []byte // written by crypto/tls, not yet on its way
}

// A Replacer is the net.Conn under a tls.Conn, which goes on with another one.
// Without it, a tls.Conn can't be taken over.
type Replacer interface {
	Replace(with net.Conn) (was net.Conn)
}

// Read takes what the socket has (io.Reader). That it has nothing is an error
// that crypto/tls doesn't remember, because it is temporary.
func (s *secured) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(s.fd, b)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, errNothing
		default:
			return 0, err
		}
	}
}

// Write collects (io.Writer).
func (s *secured) Write(b []byte) (int, error) {
	s.sealed = append(s.sealed, b...)
	return len(b), nil
}

// Deadlines mean nothing to what doesn't wait.
func (s *secured) SetDeadline(time.Time) error      { return nil }
func (s *secured) SetReadDeadline(time.Time) error  { return nil }
func (s *secured) SetWriteDeadline(time.Time) error { return nil }

// errNothing says that the socket has nothing to read: a net.Error that is
// temporary.
var errNothing = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", unix.EAGAIN)}

// seal encrypts frames into one slice that is the caller's, and forgets them.
// Small ones share a record.
func (s *secured) seal(frames [][]byte) ([]byte, error) {
	const record = 16 << 10 // RFC 8446 §5.1
	var together []byte
	for i, f := range frames {
		if len(together)+len(f) <= record && len(frames) > 1 {
			together = append(together, f...)
			if i < len(frames)-1 {
				continue
			}
			f = nil
		}
		for _, part := range [][]byte{together, f} {
			if len(part) == 0 {
				continue
			}
			if _, err := s.tls.Write(part); err != nil {
				return nil, err
			}
		}
		together = together[:0]
	}
	clear(frames)
	return s.take(), nil
}

// take is what crypto/tls wanted to write since it was last asked.
func (s *secured) take() []byte {
	b := s.sealed
	s.sealed = nil
	return b
}

// hear reads like light.hear, but what is inside the records.
func (s *secured) hear(b []byte) (int, error) {
	n, err := s.tls.Read(b)
	switch {
	case n > 0:
		return n, nil
	case errors.Is(err, unix.EAGAIN):
		return 0, unix.EAGAIN
	case errors.Is(err, io.EOF):
		return 0, nil
	default:
		return 0, err
	}
}
