// Package ticket owns tickets, by which a page in a browser becomes a device: a
// back end asks for one, the page puts it into its URL, and the gateway that is
// shown it first gives a cookie for it, with which the page's EventSource comes
// back to the same URL by itself. It doesn't decide who may have one. Its
// invariant: a ticket lets one browser in, on one gateway of the fleet, once;
// and no part of a ticket, a cookie or a secret gets into an error, a log line
// or a metric.
package ticket

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"time"
)

// Options for an Office.
type Options struct {
	SecretFile string // secrets that sign, one a line; the first makes, all are accepted
	// Claim reports whether a name is claimed for the first time within ttl, in
	// the whole fleet. After an error nobody knows.
	Claim   func(ctx context.Context, device, name string, ttl time.Duration) (first bool, err error)
	TTL     time.Duration // longest time until a ticket is redeemed, unless it asks for less
	Session time.Duration // longest time that its cookie counts, unless it asks for less
	// Secure reports whether the client's connection is encrypted, here or in
	// front. Abroad reports whether the request is of a page of another origin
	// that may read the answer.
	Secure, Abroad func(*http.Request) bool
	Metrics        *Metrics
}

// An Office makes tickets and takes them. Safe for concurrent use.
type Office struct {
	opts    Options
	secrets secrets
}

// New reads the file of secrets. An error names it and what is wrong with it.
func New(o Options) (*Office, error) {
	f := &Office{opts: o, secrets: secrets{path: o.SecretFile}}
	if _, err := f.secrets.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Load reads the file of secrets again and reports whether it has changed.
// After an error the secrets that were loaded before stay in use.
func (f *Office) Load() (changed bool, err error) { return f.secrets.load() }

// A Holder is who is let in by a ticket or its cookie.
type Holder struct {
	Device  string
	Groups  []string
	Expires time.Time
}

// An Entry is a request with a ticket that may be let in.
type Entry struct {
	Holder
	// Redeem uses the ticket up. It is for when nothing else keeps the request
	// out; then the holder that it returns is the one that counts, and cookie
	// the Set-Cookie that the answer has to carry, if it isn't empty. The error
	// is an *Error, or ErrUnavailable. Nil: the ticket is used up already, by
	// this browser.
	Redeem func(ctx context.Context) (h Holder, cookie string, err error)
}

// Offered reports whether a request has a ticket.
func Offered(r *http.Request) bool {
	query := r.URL.RawQuery // in which the name may be escaped
	return (strings.Contains(query, parameter) || strings.Contains(query, "%")) && r.URL.Query().Has(parameter)
}

// parameter of the URL that holds a ticket.
const parameter = "ticket"

// Identify reads the ticket of a request that offers one. The error is an
// *Error. On success the request loses its cookies: it may live as long as a
// stream.
func (f *Office) Identify(r *http.Request) (Entry, error) {
	e, err := f.identify(r, time.Now())
	if err != nil {
		f.opts.Metrics.count(err)
		return Entry{}, err
	}
	if e.Redeem == nil {
		f.opts.Metrics.requests[byCookie].Inc()
	}
	r.Header.Del("Cookie")
	return e, nil
}

func (f *Office) identify(r *http.Request, now time.Time) (Entry, error) {
	texts := r.URL.Query()[parameter]
	if len(texts) != 1 {
		return Entry{}, &Error{Ambiguous, "ticket stands several times in the URL; write it once", ""}
	}
	var t grant
	if !f.secrets.open(ticketKind, texts[0], &t) {
		return Entry{}, &Error{Invalid, "the ticket isn't one of this gateway's, or its secret is no longer in use: ask the back end for a new one", ""}
	}
	session := f.session(r, t.Device, now)
	switch {
	case session != nil && session.ID == t.ID, session != nil && !now.Before(t.until()):
		return Entry{Holder: session.holder()}, nil
	case !now.Before(t.until()):
		return Entry{}, &Error{Expired, "the ticket has expired, and no cookie of it came along: ask the back end for a new one", t.Device}
	}
	return Entry{
		Holder: Holder{t.Device, t.Groups, now.Add(t.session())},
		Redeem: func(ctx context.Context) (Holder, string, error) {
			h, cookie, err := f.redeem(ctx, r, t, session)
			f.opts.Metrics.count(err)
			return h, cookie, err
		},
	}, nil
}

const (
	// claimTimeout bounds how long a page waits for the log.
	claimTimeout = 2 * time.Second
	// claimMargin is by how much a claim outlives its ticket, so that a gateway
	// whose clock is behind doesn't take it again.
	claimMargin = 10 * time.Minute
)

// redeem claims a ticket. Where it can't be had, a cookie for the same device
// will do as well: it may be that another page of this browser redeemed it.
func (f *Office) redeem(ctx context.Context, r *http.Request, t grant, session *grant) (Holder, string, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	first, err := f.opts.Claim(ctx, t.Device, "ticket:"+t.ID, time.Until(t.until())+claimMargin)
	switch {
	case err == nil && first:
		s := grant{ID: t.ID, Device: t.Device, Groups: t.Groups, Expires: time.Now().Add(t.session()).Unix()}
		return s.holder(), f.cookie(r, s), nil
	case session != nil:
		return session.holder(), "", nil
	case err != nil:
		return Holder{}, "", ErrUnavailable
	default:
		return Holder{}, "", &Error{Used, "the ticket was used before, and no cookie of it came along: ask the back end for a new one", t.Device}
	}
}

// A grant is what a ticket or a cookie says.
type grant struct {
	ID      string   `json:"i"` // of the ticket
	Device  string   `json:"d"`
	Groups  []string `json:"g,omitempty"`
	Expires int64    `json:"e"` // seconds since 1970
	// Session is how long the cookie counts for which a ticket is redeemed, in
	// seconds; 0 in a cookie.
	Session int64 `json:"s,omitempty"`
}

func (g grant) until() time.Time       { return time.Unix(g.Expires, 0) }
func (g grant) session() time.Duration { return time.Duration(g.Session) * time.Second }
func (g grant) holder() Holder         { return Holder{g.Device, g.Groups, g.until()} }

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
