package gateway

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strings"
	"testing"

	"downlink/internal/console"
	"downlink/internal/openapi"
	"downlink/internal/openapi/openapitest"
	"downlink/internal/publish"
	"downlink/internal/push"
	"downlink/internal/server"
	"downlink/internal/testkit"
)

// TestEveryRouteIsDescribed, and what is described is served.
func TestEveryRouteIsDescribed(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	owned, ownerless := &Dialler{base: base{opts: g.opts, identity: g.identity, governing: g.governing}}, &Dialler{base: base{opts: g.opts, identity: g.identity, governing: g.governing}}
	owned.dial.Owner, ownerless.dial.Owner = Ring, Nobody
	var served []string
	for _, r := range slices.Concat(g.routes(), owned.routes(), ownerless.routes(), server.OwnRoutes(g.admin, g.Ready)) {
		method := r.Method
		if r.Path == publish.Path || r.Path == push.Path {
			method = http.MethodPost
		}
		served = append(served, strings.ToLower(method)+" "+strings.TrimSuffix(r.Path, "{$}"))
	}
	var described []string
	paths, _ := openapitest.Read(t).Dig("paths").(openapitest.Object)
	for path, operations := range paths {
		for method := range operations.(openapitest.Object) { //nolint:forcetypeassert // a wrong document panics
			if method != "parameters" {
				described = append(described, method+" "+path)
			}
		}
	}
	slices.Sort(served)
	served = slices.Compact(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served:\n%s\ndescribed:\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
}

// TestOperatorsAddressesAnswerAsDescribed: health, metrics, the description, and
// profiles, which are for those alone who may do everything.
func TestOperatorsAddressesAnswerAsDescribed(t *testing.T) {
	const admin, erp = "admin-token-0123456789abcdef01234567", "erp-token-0123456789abcdef0123456789"
	file := filepath.Join(t.TempDir(), "publishers.yml")
	testkit.Put(t, file, fmt.Appendf(nil, "- {name: ops, sha256: %s, admin: true}\n- {name: erp, sha256: %s, broadcast: true}\n", sha(admin), sha(erp)))
	o := testOptions(t, "file:"+t.TempDir())
	o.Backend.PublishersFile = file
	g := run(t, o)
	backend := server.Backend(g.routes(), g.admin, g.Ready)
	doc := openapitest.Read(t)
	ask := func(path, query, token, site string, want int) {
		t.Helper()
		target := strings.Replace(path, "{profile}", "goroutine", 1) + query
		if want == http.StatusNotFound {
			target = "/debug/pprof/cmdline"
		}
		r := httptest.NewRequest(http.MethodGet, target, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.Header.Set("Sec-Fetch-Site", site)
		a := httptest.NewRecorder()
		backend.ServeHTTP(a, r)
		if a.Code != want {
			t.Errorf("%s: %d %s, want %d", target, a.Code, a.Body, want)
		}
		doc.Answer(t, target, path, http.MethodGet, a.Code, a.Header(), a.Body.Bytes())
	}
	profiles := []string{"/debug/pprof/", "/debug/pprof/{profile}", "/debug/pprof/profile", "/debug/pprof/trace"}
	for _, path := range profiles {
		ask(path, "?seconds=1", "", "", http.StatusUnauthorized)
		ask(path, "?seconds=1", erp, "", http.StatusForbidden)
		ask(path, "?seconds=1", admin, "cross-site", http.StatusForbidden)
	}
	ask(profiles[0], "", admin, "none", http.StatusOK)
	ask(profiles[1], "", admin, "", http.StatusOK)
	ask(profiles[1], "?debug=1", admin, "", http.StatusOK)
	ask(profiles[1], "", admin, "", http.StatusNotFound)
	ask(profiles[2], "?seconds=1", admin, "", http.StatusOK)
	ask(profiles[3], "?seconds=0.01", admin, "", http.StatusOK)
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	ask(profiles[2], "", admin, "", http.StatusInternalServerError)
	pprof.StopCPUProfile()
	if err := trace.Start(io.Discard); err != nil {
		t.Fatal(err)
	}
	ask(profiles[3], "", admin, "", http.StatusInternalServerError)
	trace.Stop()
	open := []string{console.Path, "/healthz", "/metrics", openapi.Path, "/readyz"}
	for _, path := range open {
		ask(path, "", "", "", http.StatusOK)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	ask("/readyz", "", "", "", http.StatusServiceUnavailable)
	doc.WantAllSeen(t, append(profiles, open...)...)
}

func sha(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
