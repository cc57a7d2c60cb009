package server

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"
)

// FuzzSkim: whatever comes, the server answers or closes, and what net/http
// would refuse isn't served.
func FuzzSkim(f *testing.F) {
	f.Add([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET /events?a=%zz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"))
	s := &skim{path: "/events", reader: bufio.NewReader(nil)}
	f.Add([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\nGET /events HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		if r := s.plain(head); r != nil && (bytes.Count(head, []byte("\n\r\n"))+bytes.Count(head, []byte("\n\n")) != 1 || r.Method != http.MethodGet || r.URL.Path != "/events" || r.Host == "" || r.ContentLength != 0) {
			t.Errorf("%q was taken as %s %s", head, r.Method, r.URL)
		}
	})
}
