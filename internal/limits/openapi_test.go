package limits_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"downlink/internal/config"
	"downlink/internal/limits"
	"downlink/internal/openapi/openapitest"
	"downlink/internal/problem"
	"downlink/internal/server"
)

func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	doc := openapitest.Read(t)
	r := limits.New(config.Limits())
	r.ReadFile(limits.File{Path: "f.yml", Error: "broken", Restart: []string{"listen"}})
	r.Uses("hot_window_bytes", func() float64 { return 1.5e6 })
	r.Load([]limits.Setting{{Name: "max_header_bytes", Value: 8192, Origin: "file", Where: "f.yml:2"}})
	admin := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if code := problem.Code(r.Header.Get("X-Test-Refuse")); code != "" {
				if code == problem.Unauthorized {
					w.Header().Set("WWW-Authenticate", "Bearer")
				}
				problem.Write(w, problem.New(code, "for a test"))
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	backend := server.Backend([]server.Route{
		{Method: "GET", Path: limits.Path, Handler: admin(limits.Show(r))},
		{Method: "PATCH", Path: limits.Path, Handler: admin(limits.Apply(r, slog.New(slog.DiscardHandler)))},
	}, admin, func() (bool, string) { return true, "" })
	for _, c := range []struct{ what, method, media, body, refuse string }{
		{what: "all", method: "GET"},
		{what: "a change", method: "PATCH", body: `{"max_connections": 20000, "max_event_bytes": "64KiB", "accept_rate": null}`},
		{what: "all after it", method: "GET"},
		{what: "a wrong one", method: "PATCH", body: `{"no": 1}`},
		{what: "no JSON", method: "PATCH", body: `{`},
		{what: "large", method: "PATCH", body: strings.Repeat(" ", 1<<17)},
		{what: "a form", method: "PATCH", media: "text/plain", body: `{}`},
		{what: "unknown", method: "GET", refuse: "unauthorized"},
		{what: "unknown", method: "PATCH", refuse: "unauthorized"},
		{what: "no admin", method: "GET", refuse: "forbidden"},
		{what: "no admin", method: "PATCH", refuse: "forbidden"},
	} {
		req := httptest.NewRequest(c.method, limits.Path, strings.NewReader(c.body))
		req.Header.Set("Content-Type", "application/json")
		if c.media != "" {
			req.Header.Set("Content-Type", c.media)
		}
		req.Header.Set("X-Test-Refuse", c.refuse)
		a := httptest.NewRecorder()
		backend.ServeHTTP(a, req)
		doc.Answer(t, c.what, limits.Path, c.method, a.Code, a.Header(), a.Body.Bytes())
	}
	doc.WantAllSeen(t, limits.Path)
}
