package cors

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// ask is the answer to a request from an origin; "" sends none. The handler
// behind says that it was reached.
func ask(p *Policy, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	a := httptest.NewRecorder()
	p.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), nil).ServeHTTP(a, r)
	return a
}

func TestWhoMayRead(t *testing.T) {
	listed := []string{"https://shop.example", "http://localhost:3000", "https://[2001:db8::1]:8443"}
	for _, c := range []struct {
		origins []string
		origin  string
		status  int
		allowed string // Access-Control-Allow-Origin
	}{
		{listed, "https://shop.example", 418, "https://shop.example"},
		{listed, "http://localhost:3000", 418, "http://localhost:3000"},
		{listed, "https://[2001:db8::1]:8443", 418, "https://[2001:db8::1]:8443"},
		{listed, "http://shop.example", 403, ""},
		{listed, "https://shop.example:8443", 403, ""},
		{listed, "https://shop.example.evil.example", 403, ""},
		{listed, "https://evil-shop.example", 403, ""},
		{listed, "https://evil.example?https://shop.example", 403, ""},
		{listed, "https://SHOP.example", 403, ""},
		{listed, "https://shop.example/", 403, ""},
		{listed, " https://shop.example", 403, ""},
		{listed, "http://localhost", 403, ""},
		{listed, "null", 403, ""},
		{listed, "", 403, ""},
		{listed, "*", 403, ""},
		{listed, "file://", 403, ""},
		{listed, "http://gateway.test", 418, ""}, // the gateway's own
		{listed, "https://gateway.test:443", 418, ""},
		{listed, "http://gateway.test:81", 403, ""},
		{listed, "http://gateway.test.evil.example", 403, ""},
		{listed, "ftp://gateway.test", 403, ""},
		{nil, "https://shop.example", 403, ""},
		{nil, "http://gateway.test", 418, ""},
		{[]string{"*"}, "https://shop.example", 418, "*"},
		{[]string{"*"}, "null", 418, "*"},
	} {
		a := ask(New(c.origins, NewMetrics(nil)), "GET", "http://gateway.test/events", "Origin", c.origin)
		if a.Code != c.status || a.Header().Get("Access-Control-Allow-Origin") != c.allowed {
			t.Errorf("%q of %v: %d %v", c.origin, c.origins, a.Code, a.Header())
		}
		credentials := c.allowed != "" && c.allowed != "*"
		varies := len(c.origins) > 1
		if (a.Header().Get("Access-Control-Allow-Credentials") == "true") != credentials || (a.Header().Get("Vary") == "Origin") != varies {
			t.Errorf("%q of %v: %v", c.origin, c.origins, a.Header())
		}
		if (a.Header().Get("Access-Control-Expose-Headers") != "") != (c.allowed != "") {
			t.Errorf("%q of %v: %v", c.origin, c.origins, a.Header())
		}
	}
	if a := ask(New(listed, NewMetrics(nil)), "GET", "http://gateway.test/events", "Origin", listed[0], "Origin", listed[0]); a.Code != 403 {
		t.Errorf("two origins: %d", a.Code)
	}
	for _, c := range []struct {
		origins []string
		vary    string
	}{{listed, "Origin"}, {nil, ""}, {[]string{"*"}, ""}} {
		if a := ask(New(c.origins, NewMetrics(nil)), "GET", "http://gateway.test/events"); a.Code != 418 || a.Header().Get("Vary") != c.vary {
			t.Errorf("no origin, %v: %d %v", c.origins, a.Code, a.Header())
		}
	}
}

func TestPreflight(t *testing.T) {
	p := New([]string{"https://shop.example"}, NewMetrics(nil))
	for _, c := range []struct {
		origin, method string
		status         int
	}{
		{"https://shop.example", "GET", 204},
		{"https://evil.example", "GET", 403},
		{"https://shop.example", "", 418}, // no preflight
	} {
		header := []string{"Origin", c.origin}
		if c.method != "" {
			header = append(header, "Access-Control-Request-Method", c.method, "Access-Control-Request-Headers", "last-event-id")
		}
		a := ask(p, "OPTIONS", "http://gateway.test/events", header...)
		allowed := a.Header().Get("Access-Control-Allow-Headers")
		if a.Code != c.status || (c.status == 204) != strings.Contains(allowed, "Last-Event-ID") || (c.status == 204) != (a.Header().Get("Access-Control-Max-Age") != "") {
			t.Errorf("%+v: %d %v", c, a.Code, a.Header())
		}
	}
}

func TestAbroad(t *testing.T) {
	for _, c := range []struct {
		origins []string
		origin  string
		want    bool
	}{
		{[]string{"https://shop.example", "http://gateway.test"}, "https://shop.example", true},
		{[]string{"https://shop.example", "http://gateway.test"}, "http://gateway.test", false},
		{[]string{"https://shop.example"}, "https://evil.example", false},
		{[]string{"*"}, "https://shop.example", false},
		{[]string{"*"}, "*", false},
		{nil, "", false},
	} {
		r := httptest.NewRequest("GET", "http://gateway.test/events", nil)
		r.Header.Set("Origin", c.origin)
		if got := New(c.origins, NewMetrics(nil)).Abroad(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestOriginsThatCannotBeListed(t *testing.T) {
	for origin, want := range map[string]string{
		"*": "", "https://shop.example": "", "http://localhost:3000": "", "https://[2001:db8::1]:8443": "", "http://127.0.0.1": "",
		"null":                      "tells nobody from others",
		"shop.example":              "isn't an origin",
		"ftp://shop.example":        "isn't an origin",
		"https://":                  "isn't an origin",
		"https://user@shop.example": "isn't an origin",
		"https://shop.example/":     "write https://shop.example",
		"https://shop.example/app":  "write https://shop.example",
		"https://shop.example:443":  "write https://shop.example",
		"http://shop.example:80":    "write http://shop.example",
		"https://Shop.Example":      "write https://shop.example",
		"https://shop.example?x":    "write https://shop.example",
		"https://*.example/x":       "isn't an origin",
	} {
		if got := Fault(origin); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", origin, got, want)
		}
	}
}

// FuzzOrigin: an origin that isn't listed gets in only if it is the host's.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{"https://shop.example", "https://shop.example.evil.example", "http://gateway.test:80", "null", "http://gateway.test@evil.example"} {
		f.Add(seed)
	}
	p := New([]string{"https://shop.example"}, NewMetrics(nil))
	f.Fuzz(func(t *testing.T, origin string) {
		a := ask(p, "GET", "http://gateway.test/events", "Origin", origin)
		if a.Code == http.StatusForbidden || origin == "https://shop.example" {
			return
		}
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Hostname(), "gateway.test") || u.User != nil {
			t.Errorf("%q is let in", origin)
		}
	})
}

// TestWhoIsToldOfARefusedPage: its browser tells nobody.
func TestWhoIsToldOfARefusedPage(t *testing.T) {
	p := New([]string{"https://shop.example"}, NewMetrics(nil))
	var told []string
	h := p.Wrap(http.NotFoundHandler(), func(r *http.Request) { told = append(told, r.Header.Get("Origin")) })
	for _, origin := range []string{"https://shop.example", "null", "https://evil.example"} {
		r := httptest.NewRequest(http.MethodGet, "/events", nil)
		r.Header.Set("Origin", origin)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if strings.Join(told, " ") != "null https://evil.example" || testutil.ToFloat64(p.metrics.refused) != 2 {
		t.Errorf("told of %q, counted %v", told, testutil.ToFloat64(p.metrics.refused))
	}
}

// TestPagesThatEmbed: a frame, a script or an image sends no origin, and could
// hold a stream open all the same.
func TestPagesThatEmbed(t *testing.T) {
	for _, origins := range [][]string{nil, {"https://shop.example"}, {"*"}} {
		for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 418, "none": 418, "": 418} {
			if a := ask(New(origins, NewMetrics(nil)), "GET", "http://gateway.test/events", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "no-cors"); a.Code != want {
				t.Errorf("%q with %v: %d", site, origins, a.Code)
			}
		}
	}
	if a := ask(New([]string{"https://shop.example"}, NewMetrics(nil)), "GET", "http://gateway.test/events", "Origin", "https://shop.example", "Sec-Fetch-Site", "cross-site"); a.Code != 418 {
		t.Errorf("a listed page: %d", a.Code)
	}
}
