package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/testkit"
)

// rig is a directory with the files of the authorities.
type rig struct {
	t    *testing.T
	opts AuthorityOptions
}

func newRig(t *testing.T, cas ...*testkit.Authority) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t, AuthorityOptions{CAFile: filepath.Join(dir, "ca.pem"), Metrics: NewMetrics(nil)}}
	r.trust(cas...)
	return r
}

func (r *rig) trust(cas ...*testkit.Authority) {
	var certs []*x509.Certificate
	for _, ca := range cas {
		certs = append(certs, ca.Cert)
	}
	testkit.WriteCertificates(r.t, r.opts.CAFile, certs...)
}

func (r *rig) lists(lists ...[]byte) {
	r.opts.CRLFile = filepath.Join(filepath.Dir(r.opts.CAFile), "crl.pem")
	testkit.Put(r.t, r.opts.CRLFile, slices.Concat(lists...))
}

func (r *rig) open() *Authorities {
	r.t.Helper()
	a, err := OpenAuthorities(r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func TestVerify(t *testing.T) {
	ca, other := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "other")
	between := ca.Below("between")
	impostor := testkit.NewAuthority(t, "ca") // of the same name, with another key
	a := newRig(t, ca).open()
	now := time.Now()
	at := func(from, until time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(from), now.Add(until) }
	}
	usage := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	alone := func(l testkit.Leaf) []*x509.Certificate { return l.Chain[:1] }
	deep := between.Issue("x", nil)
	for name, c := range map[string]struct {
		shown []*x509.Certificate
		want  error
	}{
		"good":                     {alone(ca.Issue("x", nil)), nil},
		"with its authority":       {ca.Issue("x", nil).Chain, nil},
		"without a usage":          {alone(ca.Issue("x", usage())), nil},
		"intermediate shown":       {deep.Chain, nil},
		"intermediate missing":     {alone(deep), ErrUntrusted},
		"for servers":              {alone(ca.Issue("x", usage(x509.ExtKeyUsageServerAuth))), ErrUntrusted},
		"another authority":        {alone(other.Issue("x", nil)), ErrUntrusted},
		"another one that's shown": {other.Issue("x", nil).Chain, ErrUntrusted},
		"name of the authority":    {alone(impostor.Issue("x", nil)), ErrUntrusted},
		"expired":                  {alone(ca.Issue("x", at(-2*time.Hour, -time.Second))), ErrExpired},
		"not valid yet":            {alone(ca.Issue("x", at(time.Minute, time.Hour))), ErrExpired},
		"nothing":                  {nil, ErrUntrusted},
		"too much":                 {slices.Repeat(alone(ca.Issue("x", nil)), maxShown+1), ErrUntrusted},
		"another order":            {[]*x509.Certificate{deep.Cert, ca.Cert, between.Cert}, ErrUntrusted},
		"something in between":     {[]*x509.Certificate{deep.Cert, other.Cert, between.Cert}, ErrUntrusted},
		"more than is needed":      {append(slices.Clone(deep.Chain), ca.Cert, other.Cert), nil},
		"the intermediate twice":   {[]*x509.Certificate{deep.Cert, between.Cert, between.Cert}, nil},
		"an impostor's in between": {[]*x509.Certificate{deep.Cert, impostor.Below("between").Cert}, ErrUntrusted},
		"leaf as an authority":     {[]*x509.Certificate{signedBy(t, ca.Issue("leaf", nil)), ca.Cert}, ErrUntrusted},
	} {
		if _, err := a.Verify(c.shown, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	short := ca.Issue("x", at(-time.Hour, time.Minute))
	if v, err := a.Verify(alone(short), now); err != nil || !v.Until.Equal(short.Cert.NotAfter) {
		t.Errorf("until %v, %v", v.Until, err)
	}
	// A chain counts until the first of it expires.
	long, first := between.Issue("x", at(-time.Hour, 1000*time.Hour)), between.Cert.NotAfter
	if ca.Cert.NotAfter.Before(first) { // made a moment earlier
		first = ca.Cert.NotAfter
	}
	if v, err := a.Verify(long.Chain, now); err != nil || !v.Until.Equal(first) {
		t.Errorf("until %v, %v; the first of the others expires at %v", v.Until, err, first)
	}
	if _, err := a.Verify(alone(short), now.Add(time.Hour)); !errors.Is(err, ErrExpired) {
		t.Errorf("an hour later: %v", err)
	}
}

// TestStrangersCostLittle: certificates that refer to each other in circles,
// with slow keys, make nobody check their signatures.
func TestStrangersCostLittle(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	a := newRig(t, ca).open()
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(subject, issuer string, serial int64) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: subject}, DNSNames: []string{fmt.Sprint(serial)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: serial > 0, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, last := range map[string]string{"of his own": "x", "of the authority's name": "ca"} {
		shown := []*x509.Certificate{certificate("leaf", "x", 0)}
		for n := range int64(maxShown - 2) {
			shown = append(shown, certificate("x", "x", n+1))
		}
		shown = append(shown, certificate("x", last, maxShown))
		quickest := time.Hour // what else the machine does isn't counted
		for range 100 {
			began := time.Now()
			if _, err := a.Verify(shown, time.Now()); !errors.Is(err, ErrUntrusted) {
				t.Fatal(err)
			}
			quickest = min(quickest, time.Since(began))
		}
		// In circles it would be 100 signatures on P-521, each time.
		if quickest > 50*time.Millisecond {
			t.Errorf("%s: %v for a request", name, quickest)
		}
	}
}

// signedBy is a certificate that was signed with the key of a leaf.
func signedBy(t *testing.T, leaf testkit.Leaf) *x509.Certificate {
	t.Helper()
	return leaf.Sign(t, "below a leaf")
}

// TestRemovedAuthority: what was verified stands as long as its authority is
// trusted, and a file that can't be used changes nothing.
func TestRemovedAuthority(t *testing.T) {
	first, second := testkit.NewAuthority(t, "first"), testkit.NewAuthority(t, "second")
	r := newRig(t, first, second)
	a := r.open()
	shown := first.Issue("x", nil).Chain[:1]
	v, err := a.Verify(shown, time.Now())
	if err != nil || !v.Stands() {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(r.opts.CAFile, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := a.Load(); err == nil || changed || !v.Stands() || !strings.Contains(err.Error(), r.opts.CAFile) {
		t.Errorf("rubbish: changed %v, %v", changed, err)
	}
	r.trust(second, first) // in another order
	if changed, err := a.Load(); err != nil || !changed || !v.Stands() {
		t.Errorf("another order: changed %v, %v", changed, err)
	}
	r.trust(second)
	if changed, err := a.Load(); err != nil || !changed || v.Stands() {
		t.Errorf("without the authority: changed %v, %v, stands %v", changed, err, v.Stands())
	}
	if _, err := a.Verify(shown, time.Now()); !errors.Is(err, ErrUntrusted) {
		t.Errorf("anew: %v", err)
	}
}

func TestRevocation(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	between := ca.Below("between")
	first, second, deep := ca.Issue("first", nil), ca.Issue("second", nil), between.Issue("deep", nil)
	stranger := testkit.NewAuthority(t, "stranger")
	due := func(in time.Duration) func(*x509.RevocationList) {
		return func(l *x509.RevocationList) {
			l.ThisUpdate, l.NextUpdate = time.Now().Add(-100*time.Hour), time.Now().Add(in)
		}
	}
	for name, c := range map[string]struct {
		lists               [][]byte
		first, second, deep error
	}{
		"nobody":             {[][]byte{ca.Revoke(nil)}, nil, nil, ErrListUnknown},
		"one":                {[][]byte{ca.Revoke(nil, first.Cert)}, ErrRevoked, nil, ErrListUnknown},
		"each has its list":  {[][]byte{ca.Revoke(nil), between.Revoke(nil, deep.Cert)}, nil, nil, ErrRevoked},
		"the intermediate":   {[][]byte{ca.Revoke(nil, between.Cert), between.Revoke(nil)}, nil, nil, ErrRevoked},
		"old beside new":     {[][]byte{ca.Revoke(due(-50*time.Hour), first.Cert), ca.Revoke(nil, second.Cert)}, ErrRevoked, ErrRevoked, ErrListUnknown},
		"within the grace":   {[][]byte{ca.Revoke(due(-23*time.Hour), first.Cert)}, ErrRevoked, nil, ErrListUnknown},
		"stale":              {[][]byte{ca.Revoke(due(-25*time.Hour), first.Cert)}, ErrRevoked, ErrListUnknown, ErrListUnknown},
		"stale above":        {[][]byte{ca.Revoke(due(-25 * time.Hour)), between.Revoke(nil)}, ErrListUnknown, ErrListUnknown, ErrListUnknown},
		"a stranger's alone": {[][]byte{stranger.Revoke(nil, first.Cert)}, ErrListUnknown, ErrListUnknown, ErrListUnknown},
		"DER":                {[][]byte{unwrapped(ca.Revoke(nil, first.Cert))}, ErrRevoked, nil, ErrListUnknown},
	} {
		r := newRig(t, ca, between)
		r.opts.Grace = 24 * time.Hour
		r.lists(c.lists...)
		a := r.open()
		for who, want := range map[*testkit.Leaf]error{&first: c.first, &second: c.second, &deep: c.deep} {
			if _, err := a.Verify(who.Chain, time.Now()); !errors.Is(err, want) {
				t.Errorf("%s, %s: %v, want %v", name, who.Cert.Subject, err, want)
			}
		}
	}
}

func unwrapped(text []byte) []byte {
	block, _ := pem.Decode(text)
	return block.Bytes
}

// TestListsAreReadAgain: who is revoked while connected loses his right, and a
// list that says otherwise gives it back.
func TestListsAreReadAgain(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	leaf := ca.Issue("x", nil)
	r := newRig(t, ca)
	r.lists(ca.Revoke(nil))
	a := r.open()
	v, err := a.Verify(leaf.Chain, time.Now())
	if err != nil || !v.Stands() {
		t.Fatal(err)
	}
	r.lists(ca.Revoke(nil, leaf.Cert))
	if changed, err := a.Load(); !changed || err != nil || v.Stands() {
		t.Errorf("revoked: changed %v, %v, stands %v", changed, err, v.Stands())
	}
	if n := testutil.ToFloat64(r.opts.Metrics.listDue); n < float64(time.Now().Unix()) {
		t.Errorf("the gauge says %v", n)
	}
	r.lists(ca.Revoke(nil))
	if changed, err := a.Load(); !changed || err != nil || !v.Stands() {
		t.Errorf("taken back: changed %v, %v, stands %v", changed, err, v.Stands())
	}
}

func TestAuthorityFilesThatCannotBeUsed(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	impostor := testkit.NewAuthority(t, "ca")
	dir := t.TempDir()
	leaf := ca.Issue("x", nil)
	leaf.Write(t, dir, "leaf")
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	critical := func(l *x509.RevocationList) { // part of a list: an issuing distribution point
		l.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 28}, Critical: true, Value: []byte{0x30, 0}}}
	}
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})
	list := ca.Revoke(nil)
	for name, c := range map[string]struct {
		ca, crl []byte
		want    string
	}{
		"no PEM":               {[]byte("x"), nil, "holds no certificate"},
		"a key":                {read("leaf-key.pem"), nil, "PRIVATE KEY"},
		"a device's":           {read("leaf.pem"), nil, "no authority"},
		"damaged":              {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), nil, "damaged"},
		"list: a certificate":  {good, good, "CERTIFICATE"},
		"list: rubbish":        {good, []byte("x"), "damaged"},
		"list: version 1":      {good, []byte(listOfVersion1), "crlnumber"},
		"list: empty":          {good, []byte{}, "damaged"},
		"list: cut off":        {good, slices.Concat(list, list[:len(list)-30]), "damaged"},
		"list: forged":         {good, impostor.Revoke(nil), "not signed by"},
		"list: part of a list": {good, ca.Revoke(critical), "critical extension"},
	} {
		r := newRig(t, ca)
		testkit.Put(t, r.opts.CAFile, c.ca)
		if c.crl != nil {
			r.lists(c.crl)
		}
		if _, err := OpenAuthorities(r.opts); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Dir(r.opts.CAFile)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, o := range []AuthorityOptions{{CAFile: dir + "/none"}, {CAFile: dir + "/leaf.pem", CRLFile: dir + "/none"}} {
		if _, err := OpenAuthorities(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestTroubleWithLists(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	r := newRig(t, ca)
	if why := r.open().Trouble(time.Now()); why != "" {
		t.Errorf("without lists: %s", why)
	}
	r.opts.Grace = 24 * time.Hour
	r.lists(ca.Revoke(nil))
	a := r.open()
	if why := a.Trouble(time.Now()); why != "" {
		t.Errorf("a fresh list: %s", why)
	}
	if why := a.Trouble(time.Now().Add(2 * time.Hour)); !strings.Contains(why, "CN=ca") || !strings.Contains(why, r.opts.CRLFile) {
		t.Errorf("a stale list: %q", why)
	}
	r.lists(testkit.NewAuthority(t, "stranger").Revoke(nil))
	if why := r.open().Trouble(time.Now()); !strings.Contains(why, "every device") {
		t.Errorf("a stranger's list: %q", why)
	}
}

// FuzzLists: whatever the file holds, reading it doesn't panic, and what isn't
// signed by the authority revokes nothing.
func FuzzLists(f *testing.F) {
	ca := testkit.NewAuthority(f, "ca")
	list := ca.Revoke(nil, ca.Issue("x", nil).Cert)
	f.Add(list)
	f.Add(unwrapped(list))
	f.Add(bytes.Repeat([]byte("-----BEGIN X509 CRL-----\n"), 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseLists(data, []*x509.Certificate{ca.Cert})
		if err != nil {
			return
		}
		for _, l := range found {
			if len(l.serials) > 1 {
				t.Errorf("%d serial numbers are revoked", len(l.serials))
			}
		}
	})
}

// listOfVersion1 is what openssl makes where its configuration has no crlnumber.
const listOfVersion1 = `-----BEGIN X509 CRL-----
MIGdMEQwCgYIKoZIzj0EAwIwGDEWMBQGA1UEAwwNUE9TIGF1dGhvcml0eRcNMjYw
MTAxMDAwMDAwWhcNMjYwMTAyMDAwMDAwWjAKBggqhkjOPQQDAgNJADBGAiEA7+Qi
rOGP2/Remd+flm+VVZqkVITnWtE2G4ux6/EJNA4CIQDQr9RH6tT4CQgI4GBXd5Mc
g8jV+60/KEQK33pxsWwGTA==
-----END X509 CRL-----
`
