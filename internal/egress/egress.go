// Package egress owns the way out to devices: which addresses may be dialled,
// what is shown to whom, and which step of it failed. It knows neither devices
// nor events. Its invariant: no connection is made to an address that the rules
// don't allow, whatever a name resolves to and whoever asks, and no secret is in
// an error.
package egress

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options for an Egress. Metrics and Logger are required; a zero time means the
// one that is named.
type Options struct {
	// Schemes that may be dialled, of http, https, ws, wss. Empty: https and wss.
	Schemes []string
	// Allow and Deny are addresses and networks (CIDR). Nothing in Allow means
	// every ordinary address; special ones (loopback, link-local and so on) only
	// where an entry of Allow lies inside what makes them special. Deny wins.
	Allow, Deny []string

	CAFile          string // certificates that vouch for devices; empty: the system's
	CredentialsFile string // what names of credentials mean; empty: there are none

	ResolveTimeout time.Duration // of a name; 2 s
	ConnectTimeout time.Duration // of TCP, over all addresses of a name; 3 s
	TLSTimeout     time.Duration // of the handshake; 3 s
	IdleTimeout    time.Duration // how long an unused connection is kept; 90 s
	MaxIdle        int           // unused connections that are kept; 4096

	// Resolve finds the addresses of a name; nil: the system does.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Metrics *Metrics
	Logger  *slog.Logger
}

func (o *Options) fill() {
	if len(o.Schemes) == 0 {
		o.Schemes = []string{"https", "wss"}
	}
	for field, value := range map[*time.Duration]time.Duration{
		&o.ResolveTimeout: 2 * time.Second, &o.ConnectTimeout: 3 * time.Second, &o.TLSTimeout: 3 * time.Second, &o.IdleTimeout: 90 * time.Second,
	} {
		if *field <= 0 {
			*field = value
		}
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 4096
	}
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
}

// An Egress dials. Safe for concurrent use.
type Egress struct {
	opts   Options
	rules  rules
	dialer net.Dialer

	loading sync.Mutex // one Load at a time
	now     atomic.Pointer[keys]
}

// New reads the files that the options name.
func New(o Options) (*Egress, error) {
	o.fill()
	for _, s := range o.Schemes {
		if !slices.Contains([]string{"http", "https", "ws", "wss"}, s) {
			return nil, fmt.Errorf("the scheme %q can't be dialled; allowed are http, https, ws and wss", s)
		}
	}
	r, err := newRules(o.Allow, o.Deny)
	if err != nil {
		return nil, err
	}
	e := &Egress{opts: o, rules: r}
	// The check stands here, at the call that connects, because there is no way
	// around it: what a name resolved to before says nothing of what it does now.
	e.dialer.ControlContext = e.control
	if _, err := e.Load(); err != nil {
		return nil, err
	}
	return e, nil
}

// Permit says why a URL may not be dialled: its scheme isn't allowed, or it names
// an address that isn't. What a name resolves to shows when it is dialled. The
// error is an *Error of the stage Policy.
func (e *Egress) Permit(text string) error {
	u, err := url.Parse(text)
	if err != nil { // its text would repeat the URL
		return &Error{Stage: Policy, Err: errURL}
	}
	return e.permit(u)
}

func (e *Egress) permit(u *url.URL) error {
	switch {
	case u.Hostname() == "" || u.User != nil:
		return &Error{Stage: Policy, Err: errURL}
	case !slices.Contains(e.opts.Schemes, strings.ToLower(u.Scheme)):
		return &Error{Stage: Policy, Err: fmt.Errorf("the scheme %s is not among dial_schemes (%s)", clip(u.Scheme), strings.Join(e.opts.Schemes, ", "))}
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return e.permitAddr(addr)
	}
	return nil
}

func (e *Egress) permitAddr(a netip.Addr) error {
	if why := e.rules.refuse(a); why != "" {
		return &Error{Stage: Policy, Err: fmt.Errorf("the address %s %s", a.WithZone(""), why)}
	}
	return nil
}

// Client speaks HTTP/1.1 and WebSocket as the holder of a credential; an empty
// name means none. It follows no redirect: the answer is the redirect. What a
// request fails with wraps an *Error if it was on its way out. The credential
// may be changed, or may come, later.
func (e *Egress) Client(credential string) *http.Client {
	return &http.Client{
		Transport:     roundTripper{e, credential},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes connections that nobody uses.
func (e *Egress) Close() {
	for _, t := range e.now.Load().transports {
		t.CloseIdleConnections()
	}
}

type roundTripper struct {
	e          *Egress
	credential string
}

// RoundTrip is as in http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.roundTrip(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // a RoundTripper must, and may twice
	}
	return resp, err
}

func (r roundTripper) roundTrip(req *http.Request) (*http.Response, error) {
	if err := r.e.permit(req.URL); err != nil {
		r.e.opts.Metrics.failed(Policy)
		return nil, err
	}
	k, err := r.e.now.Load().find(r.credential)
	if err != nil {
		r.e.opts.Metrics.failed(Credential)
		return nil, err
	}
	ctx := req.Context()
	if ctx.Value(progressKey{}) == nil {
		ctx, _ = Track(ctx)
	}
	req = req.WithContext(ctx)
	if k.bearer != "" {
		req.Header = req.Header.Clone()
		req.Header.Set("Authorization", "Bearer "+k.bearer)
	}
	if scheme := strings.ToLower(req.URL.Scheme); scheme == "ws" || scheme == "wss" {
		u := *req.URL
		u.Scheme = "http" + scheme[2:]
		req.URL = &u
	}
	return k.transport.RoundTrip(req)
}

func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
