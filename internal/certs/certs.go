// Package certs owns the certificate that the devices' port shows, and the
// authorities and revocation lists by which it judges the certificates of
// clients: files that can be loaded again while connections stay. It neither
// listens nor watches, and knows no device. Its invariant: files that can't be
// used never take the place of ones that can.
package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// A Pair is a certificate chain and its key, in two PEM files. Safe for
// concurrent use.
type Pair struct {
	certFile, keyFile string
	metrics           *Metrics
	now               atomic.Pointer[loaded]
}

type loaded struct {
	cert *tls.Certificate
	sum  [sha256.Size]byte // of both files
}

// Open loads a pair. An error names the file and what is wrong, and nothing of
// the key.
func Open(certFile, keyFile string, m *Metrics) (*Pair, error) {
	p := &Pair{certFile: certFile, keyFile: keyFile, metrics: m}
	if _, err := p.Load(); err != nil {
		return nil, err
	}
	return p, nil
}

// Load reads the files again and reports whether they have changed. After an
// error the pair that was loaded before stays in use.
func (p *Pair) Load() (changed bool, err error) {
	cert, err := os.ReadFile(p.certFile)
	if err != nil {
		return false, err
	}
	key, err := os.ReadFile(p.keyFile)
	if err != nil {
		return false, err
	}
	sum := sumOf(cert, key)
	if now := p.now.Load(); now != nil && now.sum == sum {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s with %s: %w", p.certFile, p.keyFile, err)
	}
	p.now.Store(&loaded{&pair, sum})
	p.metrics.notAfter.Set(float64(pair.Leaf.NotAfter.Unix()))
	return true, nil
}

// Trouble says what is wrong with the certificate's dates; empty if nothing.
func (p *Pair) Trouble(now time.Time) string {
	leaf := p.now.Load().cert.Leaf
	switch {
	case now.After(leaf.NotAfter):
		return "the certificate in " + p.certFile + " expired at " + leaf.NotAfter.UTC().Format(time.RFC3339) + ": clients refuse it"
	case now.Before(leaf.NotBefore):
		return "the certificate in " + p.certFile + " is not valid before " + leaf.NotBefore.UTC().Format(time.RFC3339) + ": clients refuse it"
	}
	return ""
}

// sumOf is the digest of two files.
func sumOf(first, second []byte) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d:", len(first)) //nolint:errcheck // a hash takes everything
	h.Write(first)
	h.Write(second)
	return [sha256.Size]byte(h.Sum(nil))
}

// ConfigOptions say what else a listener does.
type ConfigOptions struct {
	NoHTTP2 bool         // offer HTTP/1.1 alone
	Clients *Authorities // of whose certificates clients are asked for one; nil: they are not
}

// Config is for a listener: each handshake gets the pair that is in use then.
//
// A client's certificate isn't judged in the handshake, but by whoever answers
// its requests, each time: a resumed session has none to fail in, and a failed
// one couldn't say why. That the client has the certificate's key is proven.
func (p *Pair) Config(o ConfigOptions) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.now.Load().cert, nil
		},
	}
	if o.NoHTTP2 {
		c.NextProtos = c.NextProtos[1:]
	}
	if o.Clients == nil {
		return c
	}
	c.ClientAuth = tls.RequestClientCert
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		// It is sent to the client, which chooses one of its certificates by it.
		now.ClientCAs = o.Clients.now.Load().pool
		return now, nil
	}
	return c
}
