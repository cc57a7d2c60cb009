package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPair makes a certificate of a name that is valid until then, and its key.
func newPair(t *testing.T, name string, from, until time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shown is the name in the certificate that a handshake would get.
func shown(t *testing.T, p *Pair) string {
	t.Helper()
	c, err := p.Config(ConfigOptions{}).GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.Subject.CommonName
}

// TestLoad walks through an exchange: the certificate first, then its key,
// then what can't be used.
func TestLoad(t *testing.T) {
	now := time.Now()
	oldCert, oldKey := newPair(t, "old", now.Add(-time.Hour), now.Add(time.Hour))
	newCert, newKey := newPair(t, "new", now.Add(-time.Hour), now.Add(2*time.Hour))
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	put(t, certFile, oldCert)
	put(t, keyFile, oldKey)
	m := NewMetrics(nil)
	p, err := Open(certFile, keyFile, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what           string
		cert, key      []byte
		changed, fails bool
		shows          string
	}{
		{"as before", oldCert, oldKey, false, false, "old"},
		{"half of the exchange", newCert, oldKey, false, true, "old"},
		{"the exchange", newCert, newKey, true, false, "new"},
		{"an empty key", newCert, nil, false, true, "new"},
		{"as before again", newCert, newKey, false, false, "new"},
		{"no certificate in it", oldKey, oldKey, false, true, "new"},
	} {
		put(t, certFile, step.cert)
		put(t, keyFile, step.key)
		changed, err := p.Load()
		if changed != step.changed || (err != nil) != step.fails || shown(t, p) != step.shows {
			t.Errorf("%s: changed %v, %v, shows %s", step.what, changed, err, shown(t, p))
		}
		if err != nil && (!strings.Contains(err.Error(), certFile) || strings.Contains(err.Error(), string(oldKey[40:60]))) {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	if n := testutil.ToFloat64(m.notAfter); n != float64(now.Add(2*time.Hour).Unix()) {
		t.Errorf("the gauge says %v", n)
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Load(); err == nil || shown(t, p) != "new" {
		t.Errorf("without a key: %v", err)
	}
	if _, err := Open(certFile, keyFile, m); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("opened without a key: %v", err)
	}
}

func TestTrouble(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	cert, key := newPair(t, "x", now.Add(-time.Hour), now.Add(time.Hour))
	put(t, certFile, cert)
	put(t, keyFile, key)
	p, err := Open(certFile, keyFile, NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]string{0: "", 2 * time.Hour: "expired", -2 * time.Hour: "not valid before"} {
		if got := p.Trouble(now.Add(at)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("at %v: %q", at, got)
		}
	}
}

// TestBackendMetrics: each port's certificate has a gauge of its own.
func TestBackendMetrics(t *testing.T) {
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	cert, key := newPair(t, "x", until.Add(-2*time.Hour), until)
	put(t, certFile, cert)
	put(t, keyFile, key)
	reg := prometheus.NewRegistry()
	NewMetrics(reg)
	if _, err := Open(certFile, keyFile, NewBackendMetrics(reg)); err != nil {
		t.Fatal(err)
	}
	found, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		want := 0.0
		if f.GetName() == "downlink_backend_tls_certificate_expiry_timestamp_seconds" {
			want = float64(until.Unix())
		}
		if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", f.GetName(), got, want)
		}
	}
	if len(found) != 3 {
		t.Errorf("%d metrics", len(found))
	}
}
