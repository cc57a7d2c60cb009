package console

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestPage: the page comes whole, and neither it nor what it shows can bring in
// anything from elsewhere. What it does is tested in a browser (test/e2e).
func TestPage(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, http.NoBody))
	policy := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "script-src 'sha256-"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %q in %q", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, digest("none")) {
		t.Errorf("the policy: %s", policy)
	}
	if w.Body.String() != page || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", w.Header())
	}
	for element := range strings.SplitSeq("script style", " ") {
		if strings.Count(page, "<"+element) != 1 {
			t.Errorf("there isn't exactly one %s", element)
		}
	}
	for _, never := range []string{`https?://`, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`, ` on[a-z]+=`, ` style=`, `localStorage|sessionStorage|cookie`} {
		if found := regexp.MustCompile(never).FindString(page); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
}
