package server

import (
	"net/http"
	"testing"
)

// FuzzSkim: what is taken without net/http is what net/http would have
// understood, and a stream's request.
func FuzzSkim(f *testing.F) {
	f.Add([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET /events?a=%zz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"))
	f.Add([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\nGET /events HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET /events HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nAccept: */*\r\naccept: text/plain\r\nX:  \ty \t\r\n\r\n"))
	s := &skim{path: "/events"}
	f.Fuzz(func(t *testing.T, head []byte) {
		r := s.plain(head, new(http.Request))
		if r == nil {
			return
		}
		asNetHTTP(t, head, r)
		if r.Method != http.MethodGet || r.URL.Path != "/events" || r.ContentLength != 0 {
			t.Errorf("%q was taken as %s %s", head, r.Method, r.URL)
		}
	})
}
