// Package cors owns which pages of other origins may read what devices get (the
// fetch standard's CORS protocol). It identifies nobody. Its invariant: a page
// whose origin isn't listed gets nothing, not even a stream that it can't read,
// and what a listed one gets says so, errors and refusals included.
package cors

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// A Policy is a list of origins. Safe for concurrent use.
type Policy struct {
	origins map[string]bool
	any     bool // every origin, without credentials
	metrics *Metrics
}

// Any is the origin that stands for all, without credentials.
const Any = "*"

// New takes origins as Fault accepts them.
func New(origins []string, m *Metrics) *Policy {
	p := &Policy{origins: make(map[string]bool, len(origins)), metrics: m}
	for _, o := range origins {
		p.any = p.any || o == Any
		p.origins[o] = true
	}
	return p
}

// Fault says why an origin can't be listed; empty if it can. It completes the
// sentence "<origin> …".
func Fault(origin string) string {
	if origin == Any {
		return ""
	}
	if origin == "null" {
		return "is what every sandboxed page and every file has for an origin: it tells nobody from others"
	}
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || strings.Contains(u.Host, "*") {
		return "isn't an origin; write scheme://host, and :port if it isn't the scheme's own, as in https://shop.example"
	}
	if canonical := canonicalOf(u); canonical != origin {
		return "isn't how a browser writes it; write " + canonical
	}
	return ""
}

// canonicalOf is an origin as browsers serialize it.
func canonicalOf(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := u.Port()
	if port != "" && port != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host += ":" + port
	}
	return u.Scheme + "://" + host
}

const (
	// headers that a page may send: an EventSource sends none but Last-Event-ID,
	// which it may send unasked; a program that reads the stream with fetch asks.
	requestHeaders = "Authorization, Cache-Control, Downlink-Client, Downlink-Groups, Last-Event-ID"
	// headers that a page may read.
	answerHeaders = "Downlink-Groups, Downlink-Refused, Downlink-Signal, Retry-After"
	methods       = "GET, HEAD"
	// maxAge is how long a browser needn't ask again, in seconds: two hours is
	// the most that Chromium takes.
	maxAge = "7200"
)

// Wrap is next for the pages that may. Of each that may not refused is told, since
// its browser shows nobody why; nil: nobody is.
func (p *Policy) Wrap(next http.Handler, refused func(*http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.any && len(p.origins) > 0 {
			w.Header().Set("Vary", "Origin") // what a cache keeps of it isn't for everybody
		}
		values := r.Header["Origin"]
		if len(values) == 0 && !embedded(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		if !p.greet(w.Header(), values, r) {
			p.metrics.refused.Inc()
			if refused != nil {
				refused(r)
			}
			http.Error(w, "pages of this origin may not read this; who runs the gateway can list it in cors_origins", http.StatusForbidden)
			return
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			preflight(w.Header())
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// embedded reports whether a page of another origin asks without saying which it
// is, as a frame, a script or an image (fetch metadata): it can read nothing, but
// would hold a stream open, with the user's cookies. Browsers say so where the
// connection is encrypted or local. Whoever may read sends its origin.
func embedded(h http.Header) bool {
	site := h.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// greet says who may read the answer; false if it isn't this page. A page of
// the gateway's own origin needs no word.
func (p *Policy) greet(h http.Header, origins []string, r *http.Request) bool {
	if len(origins) != 1 {
		return false
	}
	switch origin := origins[0]; {
	case p.any:
		h.Set("Access-Control-Allow-Origin", Any)
	case p.origins[origin]:
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
	default:
		return same(origin, r.Host)
	}
	h.Set("Access-Control-Expose-Headers", answerHeaders)
	return true
}

func preflight(h http.Header) {
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", requestHeaders)
	h.Set("Access-Control-Max-Age", maxAge)
}

// Abroad reports whether a request is of a listed page of another origin, which
// may send cookies.
func (p *Policy) Abroad(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	return p.origins[origin] && !p.any && !same(origin, r.Host)
}

// same reports whether an origin is at the host that was asked. The scheme may
// differ: something in front may speak TLS.
func same(origin, host string) bool {
	scheme, at, ok := strings.Cut(origin, "://")
	if !ok || (scheme != "http" && scheme != "https") {
		return false
	}
	return strings.EqualFold(bare(at), bare(host))
}

// bare is a host without a port that its scheme would have anyway.
func bare(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil && (port == "80" || port == "443") {
		return name
	}
	return host
}
