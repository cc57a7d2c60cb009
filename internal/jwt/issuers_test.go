package jwt

import (
	"crypto/ecdsa"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	jws "github.com/golang-jwt/jwt/v5"
)

const issuerA, issuerB, issuerC = "https://a.example", "https://b.example", "https://c.example"

// twoIssuers is a verifier with a set for A and one for B, in a bubble, whose
// sets have been fetched.
func twoIssuers(t *testing.T, a, b *issuer, others map[string]*issuer) *Verifier {
	t.Helper()
	v := setVerifier(a)
	delete(v.sets, "")
	v.sets[issuerA], v.sets[issuerB] = setOf(a, v.opts), setOf(b, v.opts)
	for name, i := range others {
		v.sets[name] = setOf(i, v.opts)
	}
	start(t, v)
	synctest.Wait()
	return v
}

// TestIssuersDontVouchForEachOther: whatever a token says, it is checked by the
// keys of the issuer that it names, and by no others.
func TestIssuersDontVouchForEachOther(t *testing.T) {
	keyA, keyB, keyFile := ecKey(t), ecKey(t), ecKey(t)
	from := func(iss any, kid string, k *ecdsa.PrivateKey) string {
		return es256(t, kid, k, map[string]any{"iss": iss, "iat": 1})
	}
	raw := func(payload string, k *ecdsa.PrivateKey) string {
		return sign(t, `{"alg":"ES256","kid":"one"}`, payload, jws.SigningMethodES256, k)
	}
	synctest.Test(t, func(t *testing.T) {
		// Both call their key the same.
		v := twoIssuers(t, &issuer{keys: ring(t, "one", keyA)}, &issuer{keys: ring(t, "one", keyB)}, nil)
		exp := time.Now().Add(time.Hour).Unix()
		for name, c := range map[string]struct{ token, want string }{
			"A by A":          {from(issuerA, "one", keyA), accepted},
			"B by B":          {from(issuerB, "one", keyB), accepted},
			"A by B":          {from(issuerA, "one", keyB), string(BadSignature)},
			"B by A":          {from(issuerB, "one", keyA), string(BadSignature)},
			"A without kid":   {sign(t, `{"alg":"ES256"}`, payload(t, map[string]any{"iss": issuerA}), jws.SigningMethodES256, keyA), accepted},
			"A, no kid, by B": {sign(t, `{"alg":"ES256"}`, payload(t, map[string]any{"iss": issuerA}), jws.SigningMethodES256, keyB), string(BadSignature)},
			"nobody by A":     {from(nil, "one", keyA), string(WrongIssuer)},
			"empty by A":      {from("", "one", keyA), string(WrongIssuer)},
			"C by A":          {from(issuerC, "one", keyA), string(WrongIssuer)},
			"A/ by A":         {from(issuerA+"/", "one", keyA), string(WrongIssuer)},
			"list by A":       {from([]string{issuerA}, "one", keyA), string(WrongIssuer)},
			"both by A":       {from([]string{issuerA, issuerB}, "one", keyA), string(WrongIssuer)},
			"twice, B last":   {raw(fmt.Sprintf(`{"iss":%q,"iss":%q,"sub":"x","exp":%d}`, issuerA, issuerB, exp), keyB), string(Malformed)},
			"escaped twice":   {raw(fmt.Sprintf(`{"iss":%q,"\u0069ss":%q,"sub":"x","exp":%d}`, issuerA, issuerB, exp), keyB), string(Malformed)},
			"escaped once":    {raw(fmt.Sprintf(`{"\u0069ss":%q,"sub":"x","exp":%d}`, issuerB, exp), keyA), string(BadSignature)},
			"other case":      {raw(fmt.Sprintf(`{"ISS":%q,"iss":%q,"sub":"x","exp":%d}`, issuerA, issuerB, exp), keyA), string(BadSignature)},
		} {
			if got := outcome(v, c.token); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
		// A key of a file is for whoever has no set.
		v.static.Store(&fileKeys{keys: ring(t, "one", keyFile)})
		if a, c := outcome(v, from(issuerA, "one", keyFile)), outcome(v, from(issuerC, "one", keyFile)); a != string(BadSignature) || c != accepted {
			t.Errorf("by the file's key: A %s, C %s", a, c)
		}
		v.opts.Issuers = []string{"https://d.example"}
		if a, c := outcome(v, from(issuerA, "one", keyA)), outcome(v, from(issuerC, "one", keyFile)); a != accepted || c != string(WrongIssuer) {
			t.Errorf("with a list of issuers: A %s, C %s", a, c)
		}
	})
}

// TestSetForAllOthers: it isn't asked for those who have one, even if they lack
// the key, and one issuer's troubles are not another's.
func TestSetForAllOthers(t *testing.T) {
	keyA, keyB, keyC := ecKey(t), ecKey(t), ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		a, b := &issuer{keys: ring(t, "a", keyA), takes: 4 * time.Second}, &issuer{err: fmt.Errorf("away")}
		c := &issuer{keys: append(ring(t, "c", keyC), ring(t, "b", keyB)...)}
		v := twoIssuers(t, a, b, map[string]*issuer{"": c})
		if !v.Ready() {
			t.Error("not ready although a set was fetched")
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble; A's first fetch
		for who, x := range map[string]struct {
			token, want string
		}{
			"C":                      {es256(t, "c", keyC, map[string]any{"iss": issuerC}), accepted},
			"nobody":                 {es256(t, "c", keyC, nil), accepted},
			"A by C":                 {es256(t, "c", keyC, map[string]any{"iss": issuerA, "iat": 1}), string(KeyUnknown)},
			"B, who is away":         {es256(t, "b", keyB, map[string]any{"iss": issuerB}), "later"},
			"C by a key called as A": {es256(t, "a", keyA, map[string]any{"iss": issuerC, "iat": 1}), string(KeyUnknown)},
		} {
			if got := outcome(v, x.token); got != x.want {
				t.Errorf("%s: %s, want %s", who, got, x.want)
			}
		}
		// Made-up kids of A make nobody fetch C's set, or wait for it.
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		before, began := c.count(), time.Now()
		for n := range 1000 {
			_ = outcome(v, fmt.Sprintf("%s.%s.AAAA", encode(fmt.Sprintf(`{"alg":"ES256","kid":"%d"}`, n)), encode(`{"iss":"`+issuerA+`","iat":1}`)))
		}
		if n := c.count() - before; n != 0 || time.Since(began) > 5*time.Second {
			t.Errorf("%d fetches of another's set, in %v", n, time.Since(began))
		}
	})
}

func TestOneSetForEachIssuer(t *testing.T) {
	o := Options{Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler), JWKS: []JWKSOptions{{URL: "https://x", Issuer: "a"}, {URL: "https://y", Issuer: "a"}}}
	if _, err := New(o); err == nil {
		t.Error("two sets for one issuer are taken")
	}
}
