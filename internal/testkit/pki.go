package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority issues certificates for tests.
type Authority struct {
	Cert *x509.Certificate
	tb   testing.TB
	key  *ecdsa.PrivateKey
	last int64 // serial number
}

// NewAuthority makes a root of the name.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	return newAuthority(tb, name, nil)
}

// Below makes an intermediate authority.
func (a *Authority) Below(name string) *Authority {
	a.tb.Helper()
	return newAuthority(a.tb, name, a)
}

func newAuthority(tb testing.TB, name string, above *Authority) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb), last: 1} // a root has signed itself
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if above == nil {
		above = &Authority{tb: tb, key: a.key, Cert: template} // it becomes number 1
	}
	a.Cert = above.sign(template, a.key)
	return a
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.tb.Helper()
	a.last++
	template.SerialNumber = big.NewInt(a.last)
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, key.Public(), a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	return cert
}

// A Leaf is a certificate with its key and what is above it.
type Leaf struct {
	Cert  *x509.Certificate
	Chain []*x509.Certificate // from the leaf to the authority that has signed it
	key   *ecdsa.PrivateKey
}

// Issue makes a certificate for a client; change, if not nil, changes what it says.
func (a *Authority) Issue(name string, change func(*x509.Certificate)) Leaf {
	a.tb.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	key := newKey(a.tb)
	cert := a.sign(template, key)
	return Leaf{Cert: cert, Chain: []*x509.Certificate{cert, a.Cert}, key: key}
}

// Write writes NAME.pem, the certificate and what is given below it, and
// NAME-key.pem into a directory.
func (l Leaf) Write(tb testing.TB, dir, name string, above ...*x509.Certificate) {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(l.key)
	if err != nil {
		tb.Fatal(err)
	}
	WriteCertificates(tb, filepath.Join(dir, name+".pem"), append([]*x509.Certificate{l.Cert}, above...)...)
	Put(tb, filepath.Join(dir, name+"-key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Revoke is a revocation list in PEM form. change, if not nil, changes what it
// says.
func (a *Authority) Revoke(change func(*x509.RevocationList), revoked ...*x509.Certificate) []byte {
	a.tb.Helper()
	a.last++
	template := &x509.RevocationList{Number: big.NewInt(a.last), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, a.Cert, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// WriteCertificates writes certificates in PEM form.
func WriteCertificates(tb testing.TB, path string, certs ...*x509.Certificate) {
	tb.Helper()
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	Put(tb, path, text)
}

// Put writes a file as one should while a gateway reads it: whoever opens it
// gets all of the old content or all of the new.
func Put(tb testing.TB, path string, content []byte) {
	tb.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatal(err)
	}
}

// Sign makes a certificate that was signed with the key of one that is no
// authority's, as somebody would who has a device.
func (l Leaf) Sign(tb testing.TB, name string) *x509.Certificate {
	tb.Helper()
	return (&Authority{tb: tb, key: l.key, Cert: l.Cert}).Issue(name, nil).Cert
}
