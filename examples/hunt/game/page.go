package game

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed page
var pageFiles embed.FS

// page serves the files in page/. Nothing but themselves and the gateways is
// within their reach.
func (g *Game) page() http.Handler {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the directory is a part of the program
	}
	policy := "default-src 'self'; connect-src 'self' " + strings.Join(g.opts.Events, " ")
	next := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
