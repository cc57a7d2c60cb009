package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"downlink/internal/openapi/openapitest"
	"downlink/internal/publish"
)

// TestEveryRouteIsDescribed, and what is described is served.
func TestEveryRouteIsDescribed(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	var served []string
	for _, r := range g.routes() {
		method := r.Method
		if r.Path == publish.Path {
			method = http.MethodPost
		}
		served = append(served, strings.ToLower(method)+" "+r.Path)
	}
	served = append(served, "get /healthz", "get /readyz")
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
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served:\n%s\ndescribed:\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
}
