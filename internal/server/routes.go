package server

import (
	"io"
	"net/http"
	"net/http/pprof"

	"downlink/internal/problem"
)

// Ready says whether the gateway can serve devices, and if not, why.
type Ready func() (ok bool, why string)

// Device is what the devices' port serves.
func Device(events http.Handler, ready Ready) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/events", events)
	health(mux, ready)
	return prompt(mux)
}

// Backend is what the back end's port serves.
func Backend(publish, openapi, metrics http.Handler, ready Ready) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/events", publish)
	mux.Handle("/v1/openapi.yaml", prompt(openapi))
	mux.Handle("/metrics", prompt(metrics))
	health(mux, ready)
	// Without cmdline: a command line may hold the log's password. Without
	// symbol: it holds as much in memory as a client cares to send.
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.New(problem.NotFound, "nothing is served at "+r.URL.EscapedPath()))
	})
	return local(mux)
}

// Brief is what the back end's port serves of publish without net/http.
func Brief(publish http.Handler) http.Handler { return local(publish) }

// health adds /healthz, which answers while the process lives and never asks
// the log, and /readyz.
func health(mux *http.ServeMux, ready Ready) {
	mux.Handle("GET /healthz", prompt(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok\n")
	})))
	mux.Handle("GET /readyz", prompt(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ok, why := ready(); !ok {
			answer(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
			return
		}
		answer(w, http.StatusOK, "ready\n")
	})))
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text) //nolint:errcheck // the client may be gone
}
