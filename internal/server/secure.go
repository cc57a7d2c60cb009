package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"downlink/internal/lobby"
)

// secure is a listener that does the TLS handshakes of its connections, and tells
// the lobby how far each has come; net/http gets those that are done, and those
// that failed, to say why. net/http could do them itself, but nobody would know
// who is in the middle of one and who hasn't begun.
type secure struct {
	// Set at construction.
	limited
	config   *tls.Config
	patience time.Duration   // with a handshake
	open     context.Context // until Close
	shut     context.CancelFunc

	*remainder
}

func securing(l limited, o Options) listener {
	s := &secure{limited: l, config: o.TLS.Clone(), patience: o.ReadHeaderTimeout, remainder: newRemainder()}
	s.open, s.shut = context.WithCancel(context.Background())
	asked := s.config.GetConfigForClient
	s.config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c, ok := hello.Conn.(*limitedConn); ok {
			c.guest.Reach(lobby.Greeted)
		}
		if asked == nil {
			return nil, nil
		}
		return asked(hello)
	}
	return s
}

// Accept returns connections on which net/http finds the handshake done. Several
// goroutines accept: one would have to wait for the processor behind the handshakes,
// and everybody else in the kernel's queue, where a flood isn't told from a device.
func (s *secure) Accept() (net.Conn, error) {
	return s.remainder.accept(func() {
		for range maxAccepting {
			go s.serveAll()
		}
	})
}

// Close implements net.Listener. It ends handshakes that aren't done.
func (s *secure) Close() error {
	s.remainder.close()
	s.shut()
	return s.limited.Close()
}

// serveAll lets connections in until the socket is closed.
func (s *secure) serveAll() {
	var buf [4 << 10]byte // room for the first message of any client that we know
	for {
		c, guest, err := s.next()
		if err != nil {
			return
		}
		// Before it can be cut, and before shake gets a turn, which takes a while
		// under a flood.
		if head := buf[:glance(c, buf[:])]; len(head) > 0 {
			if greets(head) {
				guest.Reach(lobby.Greeted)
			}
			c = &begun{Conn: c, head: bytes.Clone(head)}
		}
		go s.shake(s.seat(c, guest))
	}
}

// shake does a handshake. It needs a turn for everything but waiting: a flood's
// handshakes leave the processor to others.
func (s *secure) shake(c *limitedConn) {
	ctx, cancel := context.WithTimeout(s.open, s.patience)
	defer cancel()
	over := tls.Server(c, s.config)
	c.shaking = true
	err := over.HandshakeContext(ctx)
	c.shaking = false
	c.guest.Rest()
	switch {
	case err == nil:
		c.guest.Reach(lobby.Secured)
	case c.guest.Cut():
		return // closed already, and not for what it did
	}
	s.give(over) // the error comes again, to net/http
}

// glance reads what a connection has brought, without waiting for more. The kernel
// has waited for it a little (deferAccept).
func glance(c net.Conn, b []byte) (n int) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool { // an error comes again, to whoever reads next
		n, _ = syscall.Read(int(fd), b) //nolint:gosec // a descriptor
		return true
	})
	return max(n, 0)
}

// greets reports whether b holds the whole of the message that begins a TLS
// handshake: a ClientHello in one record (RFC 8446 §4, §5.1).
func greets(b []byte) bool {
	const recordHeader, messageHeader, handshake, clientHello = 5, 4, 22, 1
	if len(b) < recordHeader+messageHeader || b[0] != handshake || b[recordHeader] != clientHello {
		return false
	}
	record := int(b[3])<<8 | int(b[4])
	message := int(b[6])<<16 | int(b[7])<<8 | int(b[8])
	return messageHeader+message <= record && recordHeader+record <= len(b)
}
