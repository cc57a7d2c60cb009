// Package console owns the page for operators in a browser: what the governor holds
// back and why, live, and the limits beside it. The page has nothing of its own: it
// asks the back end's port as any program does, with the reader's own token where
// one is needed, and changes nothing. Its invariant: no text from elsewhere becomes
// markup or script, and the page asks nobody but the port that it came from.
package console

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// Path is where the handler belongs.
const Path = "/console"

//go:embed console.html
var page string

// Handler serves the page. It holds no data, so everybody may have it.
func Handler() http.Handler {
	policy := strings.Join([]string{
		"default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"script-src " + digest("script"), "style-src " + digest("style"),
	}, "; ")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte(page)) // the client has gone: nobody to tell
	})
}

// digest is by which the policy knows the page's only script, or style.
func digest(element string) string {
	_, text, _ := strings.Cut(page, "<"+element+">")
	text, _, _ = strings.Cut(text, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
