package server

import (
	"net"
	"strings"
)

// What skim and direct have in common: they answer only what they understand
// at once, and net/http goes on with the rest.

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
