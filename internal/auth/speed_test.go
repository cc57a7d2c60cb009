package auth

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

// typical is a token as an issuer makes it.
func typical(t testing.TB) map[string]any {
	t.Helper()
	return map[string]any{
		"iss": "https://id.example.com/realms/shops", "aud": "downlink", "jti": "0b9c6a0e-6d53-4b3f-9b0e-6b8f4e7f1a11",
		"iat": time.Now().Unix(), "sub": "store-0001/pos-1", "groups": []string{"store-0001", "tills"},
	}
}

// bearerLight is a request as the server has it, without the cost of making one.
func bearerLight(token string) *http.Request {
	return &http.Request{URL: &url.URL{Path: "/events"}, Header: http.Header{"Authorization": {"Bearer " + token}}}
}

func BenchmarkIdentifyHS256(b *testing.B) {
	v := verifier(b, nil)
	token := hs256(b, typical(b))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := identify(v, bearerLight(token)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCheckAllocates little: it is on the way of every connection.
func TestCheckAllocatesLittle(t *testing.T) {
	const most = 25
	v := verifier(t, nil)
	token := hs256(t, typical(t))
	n := testing.AllocsPerRun(100, func() {
		if _, err := v.check(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	})
	if n > most {
		t.Errorf("%v allocations, at most %d are meant", n, most)
	}
}

// BenchmarkIdentifyCertificate with a CA on P-256 and a revocation list.
func BenchmarkIdentifyCertificate(b *testing.B) {
	e := newEverything(b)
	r := offer(e.ca.Issue("by-cert", nil).Chain[:1])
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.methods.Identify(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIdentifyStaticToken(b *testing.B) {
	e := newEverything(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.methods.Identify(bearerLight(e.token)); err != nil {
			b.Fatal(err)
		}
	}
}
