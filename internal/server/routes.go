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
	for _, r := range health(ready) {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
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
	Slow    bool // Handler bounds its own time
}

// Backend is what the back end's port serves: the routes, those of OwnRoutes, and
// nothing else.
func Backend(routes []Route, admin func(http.Handler) http.Handler, ready Ready) http.Handler {
	mux := http.NewServeMux()
	paths := make(map[string]methods)
	for _, r := range slices.Concat(routes, OwnRoutes(admin, ready)) {
		if r.Method == "" {
			mux.Handle(r.Path, r.Handler)
			continue
		}
		if paths[r.Path] == nil {
			paths[r.Path] = make(methods)
			mux.Handle(r.Path, paths[r.Path])
		}
		if !r.Slow {
			r.Handler = prompt(r.Handler)
		}
		paths[r.Path][r.Method] = r.Handler
	}
	mux.Handle("/", prompt(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.New(problem.NotFound, "nothing is served at "+r.URL.EscapedPath()))
	})))
	return local(mux)
}

// OwnRoutes are what every back end's port serves: health for everybody, and
// profiles for those that admin lets pass.
func OwnRoutes(admin func(http.Handler) http.Handler, ready Ready) []Route {
	profiles := func(h http.HandlerFunc) http.Handler { return byPeople(admin(h)) }
	// Without cmdline: a command line may hold the log's password. Without
	// symbol: it holds as much in memory as a client cares to send.
	return append(health(ready),
		Route{Method: http.MethodGet, Path: "/debug/pprof/{$}", Handler: profiles(pprof.Index), Slow: true},
		Route{Method: http.MethodGet, Path: "/debug/pprof/{profile}", Handler: profiles(pprof.Index), Slow: true},
		Route{Method: http.MethodGet, Path: "/debug/pprof/profile", Handler: profiles(pprof.Profile), Slow: true},
		Route{Method: http.MethodGet, Path: "/debug/pprof/trace", Handler: profiles(pprof.Trace), Slow: true},
	)
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
	prompt(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allowed)
		problem.Write(w, problem.New(problem.MethodNotAllowed, "this address answers "+allowed))
	})).ServeHTTP(w, r)
}

// Brief is what the back end's port serves of publish without net/http.
func Brief(publish http.Handler) http.Handler { return local(publish) }

// health is /healthz, which answers while the process lives and never asks the
// log, and /readyz.
func health(ready Ready) []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/healthz", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, "ok\n")
		})},
		{Method: http.MethodGet, Path: "/readyz", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if ok, why := ready(); !ok {
				answer(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
				return
			}
			answer(w, http.StatusOK, "ready\n")
		})},
	}
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text) //nolint:errcheck // the client may be gone
}
