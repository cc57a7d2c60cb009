package auth

import (
	"context"
	"net/http"
	"strings"
)

// Methods are the ways in which a device may prove who it is. They are tried
// in the order of the fields, and the first for which the request offers
// something decides: a credential that isn't accepted never falls through to a
// weaker one.
type Methods struct {
	Certificates *Certificates // nil: client certificates mean nothing
	JWT          *JWTs         // nil: there are no JWTs
	Tokens       *Tokens       // nil: there are no static tokens
	Proxy        *Proxy        // nil: nobody in front is believed
	Tickets      bool          // pages may come with tickets, which are judged elsewhere

	Cookie  string // name of the cookie that may hold a token
	Metrics *Metrics
}

// Identify says which device a request comes from, and until when. The error
// is an *Error, or wraps jwt.ErrKeysUnavailable or ErrRevocationUnknown. On success
// the request loses its headers with tokens: it may live as long as the stream.
// Safe for concurrent use.
func (m *Methods) Identify(r *http.Request) (Identity, error) {
	id, err := m.identify(r)
	if err != nil {
		m.Metrics.failed(err)
		return Identity{}, err
	}
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	return id, nil
}

func (m *Methods) identify(r *http.Request) (Identity, error) {
	if m.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return m.Certificates.identify(r.TLS.PeerCertificates)
	}
	if m.JWT != nil || m.Tokens != nil {
		token, offered, err := tokenOf(r, m.Cookie)
		if err != nil {
			return Identity{}, err
		}
		if offered {
			return m.CheckToken(r.Context(), token)
		}
	}
	if m.Proxy != nil && m.Proxy.spoke(r) {
		return m.Proxy.identify(r)
	}
	return Identity{}, m.missing()
}

// CheckToken judges a token of either kind, if the gateway takes one; its error
// is as that of Identify. Which kind it is follows from the form alone, so that
// one kind is never tried after the other.
func (m *Methods) CheckToken(ctx context.Context, text string) (Identity, error) {
	if m.JWT == nil || m.Tokens != nil && strings.Count(text, ".") != 2 {
		return m.Tokens.check(text)
	}
	return m.JWT.check(ctx, text)
}

// missing is what to say to a request that offers nothing.
func (m *Methods) missing() error {
	var ways []string
	failure := ProxyMissing
	if m.Certificates != nil {
		failure = CertificateMissing
		ways = append(ways, "connect with a client certificate")
	}
	if m.JWT != nil || m.Tokens != nil {
		failure = TokenMissing
		ways = append(ways, "send a token as Authorization: Bearer, or where that is impossible as ?access_token= or as a cookie")
	}
	if m.Tickets {
		if len(ways) == 0 {
			failure = TokenMissing
		}
		ways = append(ways, "in a page, ask its back end for a ticket and come with ?ticket=")
	}
	if m.Proxy != nil {
		ways = append(ways, "come through the proxy that identifies devices")
	}
	return failed(failure, "nothing says which device this is: "+strings.Join(ways, "; or "))
}

// Ready reports whether devices can be identified: with static tokens,
// certificates, tickets or a proxy always, with JWTs alone if there are keys.
func (m *Methods) Ready() bool {
	return m.JWT == nil || m.Tokens != nil || m.Certificates != nil || m.Proxy != nil || m.Tickets || m.JWT.Ready()
}
