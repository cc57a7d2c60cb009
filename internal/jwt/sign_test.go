package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSigned: what is signed here is accepted here, whatever the key.
func TestSigned(t *testing.T) {
	k := makeKeys(t)
	var public []byte
	signers := []*Signer{}
	for _, key := range []crypto.Signer{k.rsa, k.p256, k.p384, k.p521, k.ed} {
		public = append(public, pemOf(t, key.Public(), "")...)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		s, err := KeySigner(block("PRIVATE KEY", der))
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	ec, err := x509.MarshalECPrivateKey(k.p256)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{
		slices.Concat(block("EC PARAMETERS", []byte("x")), block("EC PRIVATE KEY", ec)), block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k.rsa)),
	} {
		s, err := KeySigner(text)
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	bySecret, err := SecretSigner(append(slices.Clone(secret), "\nanother"+strings.Repeat("x", 32)...))
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, func(o *Options) {
		o.PublicKeysFile, o.Issuers, o.Audiences = write(t, public), []string{"me"}, []string{"downlink"}
	})
	exp := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, s := range append(signers, bySecret) {
		token, err := s.Sign("one", map[string]any{"device": "매장-12", "iss": "me", "aud": "downlink", "exp": exp.Unix()})
		if err != nil {
			t.Fatal(err)
		}
		_, expires, err := v.Check(t.Context(), token)
		if err != nil || !expires.Equal(exp.Add(10*time.Second)) {
			t.Errorf("%s: %v, %v", s.method.Alg(), expires, err)
		}
		header, payload, err := Contents(token)
		if err != nil || !strings.Contains(string(header), `"kid":"one"`) || !strings.Contains(string(payload), "매장-12") {
			t.Errorf("%s %s %v", header, payload, err)
		}
	}
}

func block(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}

func TestKeysThatCannotSign(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k := makeKeys(t)
	p224DER, err := x509.MarshalECPrivateKey(p224)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"no PEM":       {[]byte("M4RK3R"), "no PEM block"},
		"public":       {pemOf(t, k.ed.Public(), ""), "PUBLIC KEY"},
		"encrypted":    {block("ENCRYPTED PRIVATE KEY", []byte("M4RK3R")), "decrypt"},
		"damaged":      {block("PRIVATE KEY", []byte("M4RK3R")), "damaged"},
		"small RSA":    {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small)), "1024 bits"},
		"wrong curve":  {block("EC PRIVATE KEY", p224DER), "P-256"},
		"wrong kind":   {block("RSA PRIVATE KEY", p224DER), "damaged"},
		"a mere param": {block("EC PARAMETERS", nil), "no PEM block"},
	} {
		if _, err := KeySigner(c.text); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "M4RK3R") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := SecretSigner([]byte("M4RK3R")); err == nil || strings.Contains(err.Error(), "M4RK3R") {
		t.Errorf("a short secret: %v", err)
	}
}
