package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"downlink/internal/auth"
	"downlink/internal/certs"
	"downlink/internal/door"
	"downlink/internal/reload"
)

// TokenOptions say how devices' tokens are checked. Metrics and Logger are the
// gateway's.
type TokenOptions = auth.Options

// JWKSOptions are a part of TokenOptions.
type JWKSOptions = auth.JWKSOptions

// CertFiles are the PEM files of the devices' port; empty: no TLS.
type CertFiles struct{ Cert, Key string }

// Names of what is read from files, in log lines and metrics.
const (
	tlsSource = "tls"
	jwtSource = "jwt"

	configSource = "config"
)

// credentials are how the gateway shows who it is, and how it knows devices.
type credentials struct {
	verifier *auth.Verifier // nil: a device says itself who it is
	pair     *certs.Pair    // nil: no TLS
	watcher  *reload.Watcher
}

// openCredentials reads every file, so that a wrong one is known at once.
func openCredentials(o Options, m instruments) (*credentials, error) {
	c := &credentials{}
	var sources []reload.Source
	if o.Tokens != nil {
		tokens := *o.Tokens
		tokens.Metrics, tokens.Logger = m.auth, o.Logger.With("part", "auth")
		var err error
		if c.verifier, err = auth.New(tokens); err != nil {
			return nil, fmt.Errorf("the keys for device tokens: %w", err)
		}
		sources = append(sources, reload.Source{Name: jwtSource, Load: c.verifier.Load})
	}
	if o.Certificate.Cert != "" {
		var err error
		if c.pair, err = certs.Open(o.Certificate.Cert, o.Certificate.Key, m.certs); err != nil {
			return nil, fmt.Errorf("the certificate of the devices' port: %w", err)
		}
		sources = append(sources, reload.Source{Name: tlsSource, Load: c.pair.Load})
	}
	if o.Reread != nil {
		sources = append(sources, reload.Source{Name: configSource, Load: o.Reread})
	}
	c.watcher = reload.New(reload.Options{
		Sources: sources, Hangup: o.Hangup, Interval: o.ReloadInterval, Metrics: m.reload, Logger: o.Logger.With("part", "reload"),
	})
	return c, nil
}

// CheckFiles reads every file of keys and certificates that the options name:
// what would keep the gateway from starting, and what is likely to be regretted.
func CheckFiles(o Options) (warnings []string, err error) {
	c, err := openCredentials(o, instruments{auth: auth.NewMetrics(nil), certs: certs.NewMetrics(nil), reload: reload.NewMetrics(nil)})
	if err != nil {
		return nil, err
	}
	if why := c.trouble(); why != "" {
		warnings = append(warnings, why)
	}
	return warnings, nil
}

func (c *credentials) trouble() string {
	if c.pair == nil {
		return ""
	}
	return c.pair.Trouble(time.Now())
}

// tls is the configuration of the devices' port; nil without TLS.
func (c *credentials) tls() *tls.Config {
	if c.pair == nil {
		return nil
	}
	return c.pair.Config()
}

// run keeps keys and certificates fresh until ctx ends.
func (c *credentials) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { _ = c.watcher.Run(ctx) }) // ends with ctx, without an error
	if c.verifier != nil {
		parts.Go(func() { _ = c.verifier.Run(ctx) }) // likewise
	}
	parts.Wait()
}

// ready reports whether a device's word can be checked.
func (c *credentials) ready() bool { return c.verifier == nil || c.verifier.Ready() }

// identify says who asks for a stream, in the words of the device endpoint.
func (c *credentials) identify(r *http.Request) (door.Identity, error) {
	if c.verifier == nil {
		return door.Open(r)
	}
	id, err := c.verifier.Identify(r)
	if errors.Is(err, auth.ErrKeysUnavailable) {
		return door.Identity{}, &door.LaterError{Refusal: door.RefusedNoKeys}
	}
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		return door.Identity{}, &door.UnauthorizedError{Status: refused.Status(), Reason: refused.Error(), Challenge: refused.Challenge()}
	}
	return door.Identity{Device: id.Device, Groups: id.Groups, Expires: id.Expires}, err
}
