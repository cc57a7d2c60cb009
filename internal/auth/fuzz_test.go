package auth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzContent signs whatever comes, so that what lies behind the signature is
// reached: nothing panics, and who is accepted has a name.
func FuzzContent(f *testing.F) {
	v := verifier(f, nil)
	f.Add(`{"alg":"HS256"}`, `{"sub":"a","exp":9999999999,"groups":["b"]}`)
	f.Add(`{"alg":"HS256","kid":"\u0000"}`, `{"sub":"a","exp":1e9,"nbf":0.1,"groups":"b"}`)
	f.Fuzz(func(t *testing.T, header, payload string) {
		id, err := v.check(t.Context(), sign(header, payload))
		if err == nil && (id.Device == "" || id.Expires.IsZero()) {
			t.Errorf("accepted: %+v", id)
		}
	})
}

// FuzzRequest: what stands around a token never makes another one of it.
func FuzzRequest(f *testing.F) {
	f.Add("Bearer a.b.c", "access_token=x", "downlink_token=y")
	f.Add("Basic x", "access_token=%zz&access_token", "downlink_token=\"y\"; downlink_token")
	f.Fuzz(func(t *testing.T, authorization, query, cookie string) {
		r := httptest.NewRequest(http.MethodGet, "/events", nil)
		r.URL = &url.URL{Path: "/events", RawQuery: query}
		r.Header = http.Header{"Authorization": {authorization}, "Cookie": {cookie}}
		token, offered, err := tokenOf(r, "downlink_token")
		if err != nil || !offered {
			return
		}
		inQuery := r.URL.Query().Get("access_token")
		if !strings.Contains(authorization, token) && token != inQuery && !strings.Contains(cookie, token) {
			t.Errorf("%q is in none of them", token)
		}
	})
}
