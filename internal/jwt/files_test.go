package jwt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	jws "github.com/golang-jwt/jwt/v5"
)

func TestFilesThatCannotBeUsed(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(small)
	if err != nil {
		t.Fatal(err)
	}
	k := makeKeys(t)
	good := pemOf(t, k.ed.Public(), "")
	block := func(kind string, content []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	}
	marker := []byte("M4RK3R")
	for name, c := range map[string]struct {
		secrets, public []byte
		want            string
	}{
		"empty secrets":     {[]byte("\n\r\n"), nil, "no secret"},
		"short secret":      {append(slices.Concat(secret, []byte("\n")), marker...), nil, "line 2 has 6 bytes"},
		"many secrets":      {[]byte(strings.Repeat(string(secret)+"\n", 17)), nil, "17 keys"},
		"large file":        {make([]byte, maxFileBytes+1), nil, "too large"},
		"no PEM":            {nil, marker, "no PEM block"},
		"private key":       {nil, block("PRIVATE KEY", private), "block 1 is a private key"},
		"PKCS 1 private":    {nil, block("RSA PRIVATE KEY", private), "private key"},
		"small RSA":         {nil, slices.Concat(good, pemOf(t, &small.PublicKey, "")), "block 2 is an RSA key of 1024 bits"},
		"curve":             {nil, pemOf(t, &p224.PublicKey, ""), "P-256"},
		"another content":   {nil, block("PUBLIC KEY", marker), "another"},
		"another content 1": {nil, block("RSA PUBLIC KEY", marker), "another"},
		"no certificate":    {nil, block("CERTIFICATE", marker), "another"},
		"another type":      {nil, block("OPENSSH KEY", marker), "OPENSSH"},
		"damaged":           {nil, slices.Concat(good, good[:len(good)-10]), "damaged"},
		"many keys":         {nil, slices.Repeat(good, 17), "17 keys"},
	} {
		o := Options{Metrics: NewMetrics(nil)}
		if c.secrets != nil {
			o.HMACSecretFile = write(t, c.secrets)
		}
		if c.public != nil {
			o.PublicKeysFile = write(t, c.public)
		}
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), string(marker)) || !strings.Contains(err.Error(), o.HMACSecretFile+o.PublicKeysFile) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := New(Options{HMACSecretFile: t.TempDir() + "/none", Metrics: NewMetrics(nil)}); err == nil {
		t.Error("a file that isn't there is taken")
	}
}

func TestKeysOfAFileByID(t *testing.T) {
	k := makeKeys(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, k.p256.Public(), k.p256)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Headers: map[string]string{"kid": "two"}, Bytes: x509.MarshalPKCS1PublicKey(&k.otherRSA.PublicKey)})
	file := slices.Concat([]byte("a comment\n"), pemOf(t, &k.rsa.PublicKey, "one"), pkcs1, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	v := verifier(t, func(o *Options) { o.PublicKeysFile = write(t, file) })
	for _, c := range []struct {
		header string
		m      jws.SigningMethod
		key    any
		want   Failure
	}{
		{`{"alg":"RS256","kid":"one"}`, jws.SigningMethodRS256, k.rsa, ""},
		{`{"alg":"RS256","kid":"two"}`, jws.SigningMethodRS256, k.otherRSA, ""},
		{`{"alg":"RS256"}`, jws.SigningMethodRS256, k.otherRSA, ""},
		{`{"alg":"RS256","kid":"one"}`, jws.SigningMethodRS256, k.otherRSA, BadSignature},
		{`{"alg":"RS256","kid":"three"}`, jws.SigningMethodRS256, k.rsa, KeyUnknown},
		{`{"alg":"ES256","kid":"any, because the certificate has none"}`, jws.SigningMethodES256, k.p256, ""},
	} {
		if got := failure(t, v, sign(t, c.header, payload(t, nil), c.m, c.key)); got != c.want {
			t.Errorf("%s: %q, want %q", c.header, got, c.want)
		}
	}
}

// TestLoad: a changed file counts, a broken one changes nothing, and several
// secrets count side by side.
func TestLoad(t *testing.T) {
	v := verifier(t, nil)
	other := []byte(strings.Repeat("x", 32))
	byOther := sign(t, `{"alg":"HS256"}`, payload(t, nil), jws.SigningMethodHS256, other)
	for _, c := range []struct {
		content       string
		changed, bad  bool
		first, second Failure
	}{
		{string(secret), false, false, "", BadSignature},
		{string(secret) + "\n" + string(other) + "\r\n", true, false, "", ""},
		{"short", false, true, "", ""},
		{string(other) + "\n", true, false, BadSignature, ""},
		{string(other) + "\n", false, false, BadSignature, ""},
	} {
		if err := os.WriteFile(v.opts.HMACSecretFile, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		changed, err := v.Load()
		if changed != c.changed || (err != nil) != c.bad {
			t.Errorf("%q: changed is %v, %v", c.content, changed, err)
		}
		if got := failure(t, v, hs256(t, nil)); got != c.first {
			t.Errorf("%q: the first: %q, want %q", c.content, got, c.first)
		}
		if got := failure(t, v, byOther); got != c.second {
			t.Errorf("%q: the second: %q, want %q", c.content, got, c.second)
		}
	}
}

// TestTokenThatNamesNoKey: it isn't tried with any number of keys.
func TestTokenThatNamesNoKey(t *testing.T) {
	k := ecKey(t)
	ring := make(keyring, maxTried+1)
	for i := range ring {
		ring[i], _ = publicKey("", &k.PublicKey)
	}
	v := &Verifier{opts: Options{Metrics: NewMetrics(nil), Leeway: time.Second, Logger: slog.New(slog.DiscardHandler)}}
	v.static.Store(&fileKeys{keys: ring})
	if got := failure(t, v, sign(t, `{"alg":"ES256"}`, payload(t, nil), jws.SigningMethodES256, k)); got != KeyUnknown {
		t.Errorf("%q", got)
	}
}
