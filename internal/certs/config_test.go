package certs

import (
	"bytes"
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// TestConfigFollowsTheFiles: clients are asked for a certificate of the
// authorities of that moment, whatever they show they get through, and a
// session that is resumed still tells what was shown.
func TestConfigFollowsTheFiles(t *testing.T) {
	first, second := testkit.NewAuthority(t, "first"), testkit.NewAuthority(t, "second")
	r := newRig(t, first)
	clients := r.open()
	now := time.Now()
	cert, key := newPair(t, "localhost", now.Add(-time.Hour), now.Add(time.Hour))
	dir := t.TempDir()
	put(t, filepath.Join(dir, "cert"), cert)
	put(t, filepath.Join(dir, "key"), key)
	pair, err := Open(filepath.Join(dir, "cert"), filepath.Join(dir, "key"), NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	stranger := testkit.NewAuthority(t, "stranger").Issue("x", nil)
	stranger.Write(t, dir, "x")
	shown, err := tls.LoadX509KeyPair(filepath.Join(dir, "x.pem"), filepath.Join(dir, "x-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		var asked [][]byte
		client := &tls.Config{
			InsecureSkipVerify: true, MaxVersion: version, NextProtos: []string{"h2"}, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(1),
			GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = info.AcceptableCAs
				return &shown, nil
			},
		}
		server := pair.Config(ConfigOptions{Clients: clients})
		for _, step := range []struct {
			trusted *testkit.Authority
			resumed bool
		}{{first, false}, {second, true}} {
			r.trust(step.trusted)
			if _, err := clients.Load(); err != nil {
				t.Fatal(err)
			}
			state := shake(t, server, client)
			if state.DidResume != step.resumed || len(state.PeerCertificates) != 1 || !state.PeerCertificates[0].Equal(stranger.Cert) || state.NegotiatedProtocol != "h2" {
				t.Errorf("TLS %x: resumed %v, shown %d, %q", version, state.DidResume, len(state.PeerCertificates), state.NegotiatedProtocol)
			}
		}
		client.ClientSessionCache = nil
		shake(t, server, client)
		if !slices.EqualFunc(asked, [][]byte{second.Cert.RawSubject}, bytes.Equal) {
			t.Errorf("TLS %x: clients are asked for certificates of %q", version, asked)
		}
	}
	if c := pair.Config(ConfigOptions{NoHTTP2: true}); slices.Contains(c.NextProtos, "h2") || c.ClientAuth != tls.NoClientCert {
		t.Errorf("%q, %v", c.NextProtos, c.ClientAuth)
	}
}

// shake makes a handshake and returns what the server knows after it.
func shake(t *testing.T, server, client *tls.Config) tls.ConnectionState {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a net.Pipe, where both write at once, would block
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s, c := tls.Server(a, server), tls.Client(b, client)
	failed := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x")) // with it the client takes its session ticket
		}
		failed <- err
	}()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return s.ConnectionState()
}
