package jwt

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jws "github.com/golang-jwt/jwt/v5"
)

// jwks is a key set with one key of each kind, and what must be passed over.
func jwks(t *testing.T, k keys) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	point := func(crv string, x, y *big.Int, size int) map[string]any {
		return map[string]any{"kty": "EC", "crv": crv, "kid": crv, "x": b64(x.FillBytes(make([]byte, size))), "y": b64(y.FillBytes(make([]byte, size)))}
	}
	n := func(p *rsa.PublicKey) string { return b64(p.N.Bytes()) }
	raw := []byte(k.ed[32:]) // the public half
	set := map[string]any{"keys": []any{
		map[string]any{"kty": "RSA", "kid": "rsa", "use": "sig", "n": n(&k.rsa.PublicKey), "e": "AQAB"},
		map[string]any{"kty": "RSA", "kid": "only PS256", "alg": "PS256", "n": n(&k.otherRSA.PublicKey), "e": "AQAB"},
		point("P-256", k.p256.X, k.p256.Y, 32),
		point("P-384", k.p384.X, k.p384.Y, 48),
		point("P-521", k.p521.X, k.p521.Y, 66),
		map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "key_ops": []string{"verify"}, "x": b64(raw)},
		// To be passed over:
		map[string]any{"kty": "oct", "kid": "secret", "k": b64(secret)},
		map[string]any{"kty": "RSA", "kid": "encrypts", "use": "enc", "n": n(&k.rsa.PublicKey), "e": "AQAB"},
		map[string]any{"kty": "RSA", "kid": "signs", "key_ops": []string{"sign"}, "n": n(&k.rsa.PublicKey), "e": "AQAB"},
		map[string]any{"kty": "RSA", "kid": "small", "n": b64(big.NewInt(65537).Bytes()), "e": "AQAB"},
		map[string]any{"kty": "RSA", "kid": "huge", "n": b64(make([]byte, 2000)), "e": "AQAB"},
		map[string]any{"kty": "RSA", "kid": "even e", "n": n(&k.rsa.PublicKey), "e": "AQAA"},
		map[string]any{"kty": "RSA", "kid": "e is 1", "n": n(&k.rsa.PublicKey), "e": "AQ"},
		map[string]any{"kty": "RSA", "kid": "wrong alg", "alg": "HS256", "n": n(&k.rsa.PublicKey), "e": "AQAB"},
		map[string]any{"kty": "EC", "crv": "P-256", "kid": "beside", "x": b64(make([]byte, 32)), "y": b64(make([]byte, 32))},
		map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "k1", "x": "AA", "y": "AA"},
		map[string]any{"kty": "OKP", "crv": "X25519", "kid": "x", "x": b64(raw)},
		map[string]any{"kty": 5}, "text", nil,
	}}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKeySetOfEveryKind(t *testing.T) {
	k := makeKeys(t)
	ring, err := parseKeySet([]byte(jwks(t, k)))
	if err != nil || len(ring) != 6 {
		t.Fatalf("%d keys, %v", len(ring), err)
	}
	for _, c := range []struct {
		kid  string
		m    jws.SigningMethod
		key  any
		good bool
	}{
		{"rsa", jws.SigningMethodRS256, k.rsa, true},
		{"rsa", jws.SigningMethodPS512, k.rsa, true},
		{"only PS256", jws.SigningMethodPS256, k.otherRSA, true},
		{"only PS256", jws.SigningMethodRS256, k.otherRSA, false},
		{"P-256", jws.SigningMethodES256, k.p256, true},
		{"P-384", jws.SigningMethodES384, k.p384, true},
		{"P-521", jws.SigningMethodES512, k.p521, true},
		{"ed", jws.SigningMethodEdDSA, k.ed, true},
		{"secret", jws.SigningMethodHS256, secret, false},
		{"encrypts", jws.SigningMethodRS256, k.rsa, false},
	} {
		parsed, err := parseToken(sign(t, fmt.Sprintf(`{"alg":%q,"kid":%q}`, c.m.Alg(), c.kid), "{}", c.m, c.key))
		if err != nil {
			t.Fatal(err)
		}
		found := ring.find(parsed.alg, parsed.kid)
		if good := len(found) == 1 && found[0].verify(parsed); good != c.good {
			t.Errorf("%s with %s: %v", c.kid, c.m.Alg(), good)
		}
	}
}

// TestIssuerThatMisbehaves: whatever it answers, the error says what and holds
// nothing of the address but the host.
func TestIssuerThatMisbehaves(t *testing.T) {
	good := jwks(t, makeKeys(t))
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, good)
	}))
	t.Cleanup(plain.Close)
	var told atomic.Value
	told.Store("")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mode := told.Load()
		switch {
		case mode == "good" || r.URL.Path == "/elsewhere":
			fmt.Fprint(w, good)
		case mode == "error":
			http.Error(w, "M4RK3R", http.StatusInternalServerError)
		case mode == "page":
			fmt.Fprint(w, "<html>log in</html>")
		case mode == "empty object":
			fmt.Fprint(w, "{}")
		case mode == "empty set":
			fmt.Fprint(w, `{"keys":[]}`)
		case mode == "secrets":
			fmt.Fprint(w, `{"keys":[{"kty":"oct","k":"AAAA"}]}`)
		case mode == "huge":
			fmt.Fprint(w, good+strings.Repeat(" ", maxKeySetBytes))
		case mode == "cut":
			w.Header().Set("Content-Length", "9999")
			fmt.Fprint(w, good)
		case mode == "hang":
			<-r.Context().Done()
		case mode == "drip":
			for n := 0; r.Context().Err() == nil; n++ {
				fmt.Fprint(w, good[n%len(good)])
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(10 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
		case mode == "to http":
			http.Redirect(w, r, plain.URL, http.StatusFound)
		case mode == "to https":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case mode == "loop":
			http.Redirect(w, r, "/", http.StatusFound)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a handshake fails on purpose
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := write(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	f, err := newFetcher(JWKSOptions{URL: server.URL + "/keys?code=M4RK3R", CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ mode, want string }{
		{"good", ""}, {"to https", ""},
		{"error", "500"}, {"page", "no JSON Web Key Set"}, {"empty object", "no JSON Web Key Set"}, {"empty set", "no key"}, {"secrets", "no key"},
		{"huge", "1 MiB"}, {"cut", "EOF"}, {"to http", "from https to http"}, {"loop", "loop"},
	} {
		told.Store(c.mode)
		ring, err := f.fetch(t.Context())
		if c.want == "" {
			if err != nil || len(ring) != 6 {
				t.Errorf("%s: %d keys, %v", c.mode, len(ring), err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), f.url.Host) || strings.Contains(err.Error(), "M4RK3R") {
			t.Errorf("%s: %v, want %q", c.mode, err, c.want)
		}
	}
	// Which error it is depends on who notices first that the time is over.
	for _, mode := range []string{"hang", "drip"} {
		told.Store(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		if _, err := f.fetch(ctx); err == nil || strings.Contains(err.Error(), "M4RK3R") || time.Since(began) > time.Minute {
			t.Errorf("%s: %v after %v", mode, err, time.Since(began))
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.fetch(ctx); err == nil || strings.Contains(err.Error(), "M4RK3R") {
		t.Errorf("cancelled: %v", err)
	}
	stranger, err := newFetcher(JWKSOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}

func TestAddressesThatCannotBe(t *testing.T) {
	for _, u := range []string{"ftp://M4RK3R/", "https://", "M4RK3R", "https://u:M4RK3R@[::1"} {
		if _, err := newFetcher(JWKSOptions{URL: u}); err == nil || strings.Contains(err.Error(), "M4RK3R") {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, file := range []string{t.TempDir() + "/none", write(t, []byte("no PEM"))} {
		if _, err := newFetcher(JWKSOptions{URL: "https://x", CAFile: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
