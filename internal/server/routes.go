package server

import (
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"path"
	"slices"
	"strings"

	"downlink/internal/problem"
)

// Ready says whether the gateway can serve devices, and if not, why.
type Ready func() (ok bool, why string)

// Device is what the devices' port serves: the routes, which answer every
// method, and health.
func Device(routes []Route, ready Ready) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.Path, r.Handler)
	}
	health(mux, ready)
	return prompt(exact(mux))
}

// exact refuses what http.ServeMux would redirect to the cleaned path (//events,
// /x/../events): the redirect repeats the query, in which a token may stand.
func exact(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean("/"+r.URL.Path) != r.URL.Path {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A Route is what is served at a path of one of the ports.
type Route struct {
	// Method that Handler answers; GET is for HEAD too. Others get a 405. Empty:
	// Handler answers every method, and bounds its own time.
	Method  string
	Path    string // as http.ServeMux takes it, without method and host
	Handler http.Handler
}

// Backend is what the back end's port serves: the routes, health for everybody,
// and profiles for those that admin lets pass.
func Backend(routes []Route, admin func(http.Handler) http.Handler, ready Ready) http.Handler {
	mux := http.NewServeMux()
	paths := make(map[string]methods)
	for _, r := range routes {
		if r.Method == "" {
			mux.Handle(r.Path, r.Handler)
			continue
		}
		if paths[r.Path] == nil {
			paths[r.Path] = make(methods)
			mux.Handle(r.Path, prompt(paths[r.Path]))
		}
		paths[r.Path][r.Method] = r.Handler
	}
	health(mux, ready)
	// Without cmdline: a command line may hold the log's password. Without
	// symbol: it holds as much in memory as a client cares to send.
	mux.Handle("/debug/pprof/", byPeople(admin(http.HandlerFunc(pprof.Index))))
	mux.Handle("/debug/pprof/profile", byPeople(admin(http.HandlerFunc(pprof.Profile))))
	mux.Handle("/debug/pprof/trace", byPeople(admin(http.HandlerFunc(pprof.Trace))))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.New(problem.NotFound, "nothing is served at "+r.URL.EscapedPath()))
	})
	return local(mux)
}

// methods are what is served at one path.
type methods map[string]http.Handler

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead && m[method] == nil {
		method = http.MethodGet
	}
	if h := m[method]; h != nil {
		h.ServeHTTP(w, r)
		return
	}
	allowed := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	w.Header().Set("Allow", allowed)
	problem.Write(w, problem.New(problem.MethodNotAllowed, "this address answers "+allowed))
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
