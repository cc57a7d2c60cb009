package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/auth"
	"downlink/internal/certs"
	"downlink/internal/door"
	"downlink/internal/jwt"
	"downlink/internal/reload"
	"downlink/internal/ticket"
)

// IdentityOptions say how devices are known. Nothing set: ?device= says it.
type IdentityOptions struct {
	JWT          *TokenOptions
	TokensFile   string // static tokens; empty: there are none
	Certificates *ClientCertOptions
	Proxy        *ProxyOptions
	Tickets      *TicketOptions
	Cookie       string // that may hold a token
}

// TokenOptions say how devices' JWTs are checked.
type TokenOptions = auth.JWTOptions

// KeyOptions say by which keys JWTs are checked. Holders, Metrics and Logger are
// the gateway's.
type KeyOptions = jwt.Options

// JWKSOptions are a part of KeyOptions.
type JWKSOptions = jwt.JWKSOptions

// ProxyOptions say which proxy in front is believed.
type ProxyOptions = auth.ProxyOptions

// ClientCertOptions say how client certificates are checked (CAFile to Grace, as
// in certs.AuthorityOptions), and how they name a device (as in
// auth.CertificateOptions).
type ClientCertOptions struct {
	CAFile, CRLFile string
	Grace           time.Duration
	Field, Form     string
	OrgUnits        bool
}

// CertFiles are the PEM files of the devices' port; empty: no TLS.
type CertFiles struct {
	Cert, Key string
	NoHTTP2   bool // offer HTTP/1.1 alone
}

// Names of what is read from files, in log lines and metrics.
const (
	tlsSource    = "tls"
	jwtSource    = "jwt"
	tokensSource = "tokens"
	clientSource = "tls_client"
	configSource = "config"

	publishersSource = "publishers"
	backendJWTSource = "backend_jwt"
	backendTLSSource = "backend_tls"
	ticketSource     = "tickets"

	governorSource = "governor"

	dialledSource = "dialled_devices" // what is shown to devices that are dialled, and who vouches for them
)

// credentials are how the gateway shows who it is, and how it knows devices.
type credentials struct {
	pages   *pages
	callers callers            // of the back end's port
	methods *auth.Methods      // nil: a device says itself who it is
	pair    *certs.Pair        // nil: no TLS
	clients *certs.Authorities // nil: clients need no certificate
	noHTTP2 bool
	watcher *reload.Watcher
	log     *slog.Logger
	changed atomic.Pointer[func()] // what to do when a credential may have been withdrawn
}

// openCredentials reads every file, so that a wrong one is known at once. more is
// what is to be read again beside them.
func openCredentials(o Options, m instruments, more ...reload.Source) (*credentials, error) {
	c := &credentials{noHTTP2: o.Certificate.NoHTTP2, log: o.Logger.With("part", "auth")}
	var sources []reload.Source
	if o.Reread != nil { // first: others ask what it says
		sources = append(sources, reload.Source{Name: configSource, Load: o.Reread})
	}
	ofDevices, err := c.openIdentity(o, m)
	if err != nil {
		return nil, err
	}
	sources = append(sources, ofDevices...)
	if o.Certificate.Cert != "" {
		if c.pair, err = certs.Open(o.Certificate.Cert, o.Certificate.Key, m.certs); err != nil {
			return nil, fmt.Errorf("the certificate of the devices' port: %w", err)
		}
		sources = append(sources, reload.Source{Name: tlsSource, Load: c.pair.Load})
	}
	var ofCallers []reload.Source
	if c.callers, ofCallers, err = openCallers(o, m); err != nil {
		return nil, err
	}
	sources = append(sources, ofCallers...)
	var ofPages []reload.Source
	if c.pages, ofPages, err = openPages(o, m); err != nil {
		return nil, err
	}
	sources = append(append(sources, ofPages...), more...)
	c.watcher = reload.New(reload.Options{
		Sources: sources, Hangup: o.Hangup, Interval: o.ReloadInterval, Metrics: m.reload, Logger: o.Logger.With("part", "reload"),
	})
	return c, nil
}

func (c *credentials) openIdentity(o Options, m instruments) (sources []reload.Source, err error) {
	methods, id := auth.Methods{Cookie: o.Identity.Cookie, Tickets: o.Identity.Tickets != nil, Metrics: m.auth}, o.Identity
	if id.JWT != nil {
		by := *id.JWT
		by.Keys.Metrics, by.Keys.Logger = m.jwt, c.log
		if methods.JWT, err = auth.OpenJWTs(by); err != nil {
			return nil, fmt.Errorf("the keys for device tokens: %w", err)
		}
		sources = append(sources, reload.Source{Name: jwtSource, Load: methods.JWT.Load})
	}
	if id.TokensFile != "" {
		if methods.Tokens, err = auth.OpenTokens(id.TokensFile); err != nil {
			return nil, fmt.Errorf("the device tokens: %w", err)
		}
		sources = append(sources, reload.Source{Name: tokensSource, Load: c.withdrawing(methods.Tokens.Load)})
	}
	if by := id.Certificates; by != nil {
		if c.clients, err = certs.OpenAuthorities(certs.AuthorityOptions{CAFile: by.CAFile, CRLFile: by.CRLFile, Grace: by.Grace, Metrics: m.certs}); err != nil {
			return nil, fmt.Errorf("the authorities of devices' certificates: %w", err)
		}
		if methods.Certificates, err = auth.NewCertificates(auth.CertificateOptions{
			Authorities: c.clients, Field: by.Field, Form: by.Form, OrgUnits: by.OrgUnits,
		}); err != nil {
			return nil, err
		}
		sources = append(sources, reload.Source{Name: clientSource, Load: c.withdrawing(c.clients.Load)})
	}
	if id.Proxy != nil {
		methods.Proxy = auth.NewProxy(*id.Proxy)
	}
	if methods.JWT != nil || methods.Tokens != nil || methods.Certificates != nil || methods.Proxy != nil || methods.Tickets {
		c.methods = &methods
	}
	return sources, nil
}

// withdrawing is a load after which streams may have lost their right.
func (c *credentials) withdrawing(load func() (bool, error)) func() (bool, error) {
	return func() (bool, error) {
		changed, err := load()
		if end := c.changed.Load(); changed && end != nil {
			(*end)()
		}
		return changed, err
	}
}

// onChange sets what is called each time that credentials may have been
// withdrawn, and calls it, because that may just have happened.
func (c *credentials) onChange(end func()) {
	c.changed.Store(&end)
	end()
}

// CheckFiles reads every file of keys and certificates that the options name:
// what would keep the gateway from starting, and what is likely to be regretted.
func CheckFiles(o Options) (warnings []string, err error) {
	g := &Gateway{base: base{opts: o}}
	if _, err := g.openFlowSettings(g.signals(g.outline())); err != nil {
		return nil, err
	}
	return g.checkFiles()
}

// checkFiles reads the files that every program may have.
func (g *base) checkFiles() (warnings []string, err error) {
	c, err := openCredentials(g.opts, newInstruments(prometheus.NewRegistry()))
	if err != nil {
		return nil, err
	}
	return c.troubles(), nil
}

// troubles are what is wrong with certificates and lists by now.
func (c *credentials) troubles() []string {
	var found []string
	if c.pair != nil {
		if why := c.pair.Trouble(time.Now()); why != "" {
			found = append(found, why)
		}
	}
	if why := c.callers.trouble(); why != "" {
		found = append(found, why)
	}
	if c.clients != nil {
		if why := c.clients.Trouble(time.Now()); why != "" {
			found = append(found, why)
		}
	}
	return found
}

// tls is the configuration of the devices' port; nil without TLS.
func (c *credentials) tls() *tls.Config {
	if c.pair == nil {
		return nil
	}
	return c.pair.Config(certs.ConfigOptions{NoHTTP2: c.noHTTP2, Clients: c.clients})
}

// run keeps keys and certificates fresh until ctx ends.
func (c *credentials) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { _ = c.watcher.Run(ctx) }) // ends with ctx, without an error
	if c.methods != nil && c.methods.JWT != nil {
		parts.Go(func() { _ = c.methods.JWT.Run(ctx) }) // likewise
	}
	parts.Go(func() { c.callers.run(ctx) })
	parts.Go(func() { c.watchDates(ctx, time.Minute) })
	parts.Wait()
}

// watchDates says at each interval what has become wrong, once.
func (c *credentials) watchDates(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	said := make(map[string]bool)
	for {
		for _, why := range c.troubles() {
			if !said[why] {
				said[why] = true
				c.log.Warn("a certificate or revocation list is likely to be regretted", "why", why)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ready reports whether devices' credentials can be checked.
func (c *credentials) ready() bool { return c.methods == nil || c.methods.Ready() }

// identify says who asks, in the words of the door.
func (c *credentials) identify(r *http.Request) (door.Identity, error) {
	if c.pages.tickets != nil && ticket.Offered(r) {
		return c.pages.byTicket(r)
	}
	if c.methods == nil {
		return door.Open(r)
	}
	id, err := c.methods.Identify(r)
	if failed, ok := errors.AsType[*auth.Error](err); ok {
		return door.Identity{}, &door.UnauthorizedError{
			Status: failed.Status(), Reason: failed.Error(), Challenge: failed.Challenge(), Word: string(failed.Failure), Device: failed.Claimed,
		}
	}
	if later, ok := errors.AsType[*auth.LaterError](err); ok {
		refusal := door.RefusedNoKeys
		if errors.Is(err, auth.ErrRevocationUnknown) {
			refusal = door.RefusedNoCRL
		}
		return door.Identity{}, &door.LaterError{Refusal: refusal, Device: later.Claimed}
	}
	return door.Identity{Device: id.Device, Groups: id.Groups, Expires: id.Expires, Valid: id.Valid, Credential: id.By}, err
}
