package server

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// What skim and direct have in common: they answer only what they understand
// at once, and net/http goes on with the rest.

// alone is the request in b if b is nothing but that request, with all of its
// body, and if there is nothing about it that net/http had better decide;
// otherwise nil. It reads with reader, and the body stays there.
func alone(reader *bufio.Reader, text *bytes.Reader, b []byte) *http.Request {
	if end := bytes.Index(b, []byte("\r\n\r\n")); end < 0 || unusual(b[:end]) {
		return nil
	}
	text.Reset(b)
	reader.Reset(text)
	r, err := http.ReadRequest(reader)
	if err != nil || !simple(r) || r.ContentLength != int64(reader.Buffered()+text.Len()) {
		return nil
	}
	return r
}

// unusual reports whether a header holds what has no place in it (RFC 9110
// §5.5), or a line that doesn't end in CRLF: where others see its end, or a
// field's, is then anybody's guess (RFC 9112 §2.2).
func unusual(header []byte) bool {
	for i, c := range header {
		switch {
		case c == '\n' && (i == 0 || header[i-1] != '\r'):
			return true
		case c < ' ' && c != '\r' && c != '\n' && c != '\t', c == 0x7f:
			return true
		}
	}
	return false
}

// simple reports whether a request asks for nothing that only net/http does.
func simple(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.Host == "" || !httpguts.ValidHostHeader(r.Host) ||
		r.Close || len(r.TransferEncoding) != 0 || r.Header["Expect"] != nil || r.Header["Upgrade"] != nil {
		return false
	}
	for name := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return false // http.ReadRequest bears "Content-Length : 5", and a server mustn't (RFC 9112 §5.1)
		}
	}
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
