package publish

import (
	_ "embed"
	"net/http"

	"downlink/internal/problem"
)

//go:embed openapi.yaml
var openAPI string

// OpenAPI serves the description of the back end's port.
func OpenAPI() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			problem.Write(w, problem.New(problem.MethodNotAllowed, "the document is read with GET, not "+clip(r.Method)))
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write([]byte(openAPI)) // the client has gone: nobody to tell
	})
}
