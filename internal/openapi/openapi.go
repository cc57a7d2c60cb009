// Package openapi owns the description of the back end's port. What it says is
// done by others; their tests hold their answers against it. Its invariant: each
// answer that is described, a test has seen.
package openapi

import (
	_ "embed"
	"net/http"
)

// Path is where the document belongs.
const Path = "/v1/openapi.yaml"

//go:embed openapi.yaml
var text string

// Text is the document, OpenAPI 3.1 in YAML.
func Text() string { return text }

// Handler serves the document.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write([]byte(text)) // the client has gone: nobody to tell
	})
}
