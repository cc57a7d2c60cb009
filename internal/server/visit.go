package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"downlink/internal/lobby"
	"downlink/internal/peer"
)

// VisitOf is the visit that a request is, by which it is admitted; nil for a
// request that didn't come through a Server.
func VisitOf(r *http.Request) *lobby.Visit {
	v, _ := r.Context().Value(visitKey{}).(*lobby.Visit)
	return v
}

type (
	visitKey struct{}
	guestKey struct{}
)

// withGuest lets a connection's requests find it.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, guestOf(c))
}

// visiting makes a visit of each request that net/http has read.
func visiting(next http.Handler, proxies peer.Proxies) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(guestKey{}).(*limitedConn)
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		c.guest.Reach(lobby.Asked)
		v := visit(c.guest, proxies, r)
		defer v.End()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
	})
}

// visit begins a guest's visit.
func visit(g *lobby.Guest, proxies peer.Proxies, r *http.Request) *lobby.Visit {
	if !g.Proxied() {
		return g.Visit(netip.Addr{})
	}
	return g.Visit(proxies.Client(peer.Of(r.RemoteAddr), r.Header))
}
