package server

import (
	"net"
	"net/http"
	"strings"
	"time"

	"downlink/internal/problem"
)

// settled bounds how long a body may take that no handler asks for: net/http
// reads it after the handler, before the answer goes out, and without a limit.
// A handler that wants the body sets deadlines of its own.
func settled(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
		}
		next.ServeHTTP(w, r)
	})
}

// answerTimeout is how long a client may take to take an answer that isn't a
// stream.
const answerTimeout = 30 * time.Second

// prompt bounds how long an answer may wait for its client, which on HTTP/2
// may open no window for it. A stream renews its own deadlines.
func prompt(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		next.ServeHTTP(w, r)
	})
}

// byPeople refuses what a page of another origin makes its browser send: a GET needs
// no leave, and a profile slows the gateway for as long as it is asked for.
func byPeople(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			problem.Write(w, problem.New(problem.CrossOrigin, "a page of another origin sent it"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local refuses what was asked of another name than this machine's: a page in
// a browser here, whose name was pointed at a loopback address (DNS rebinding).
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if ok && at.IP.IsLoopback() && !localName(r.Host) {
			problem.Write(w, problem.New(problem.WrongHost, "the request is for another host than this machine"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func localName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(host) != nil
}
