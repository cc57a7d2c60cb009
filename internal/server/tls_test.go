package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// certificate is one that a test server has, and who trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
}

// TestTLS: both versions of HTTP by ALPN, streams in pieces, and nothing in
// the clear.
func TestTLS(t *testing.T) {
	cert, roots := certificate(t)
	secured := func(o *Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "piece\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
	}
	s := serve(t, secured)
	for _, want := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: want == "HTTP/2.0"}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + s.Addr().String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, 6)
		if _, err := io.ReadFull(resp.Body, piece); err != nil || string(piece) != "piece\n" || resp.Proto != want || resp.TLS.Version != tls.VersionTLS13 {
			t.Errorf("%s: %s %q, %v", want, resp.Proto, piece, err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
	}
	if resp := dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !says(resp, "400 Bad Request") {
		t.Error("a request in the clear isn't refused")
	}
	hasty := serve(t, func(o *Options) { secured(o); o.ReadHeaderTimeout = 300 * time.Millisecond })
	if _, err := io.ReadAll(dial(t, hasty, "\x16\x03\x01")); err != nil {
		t.Errorf("a slow handshake isn't cut: %v", err)
	}
	old := &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if err := tls.Client(dialConn(t, s, ""), old).Handshake(); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

func says(r io.Reader, want string) bool {
	text, err := io.ReadAll(r)
	return err == nil && strings.Contains(string(text), want)
}
