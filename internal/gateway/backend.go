package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"downlink/internal/access"
	"downlink/internal/certs"
	"downlink/internal/jwt"
	"downlink/internal/publish"
	"downlink/internal/push"
	"downlink/internal/reload"
)

// BackendOptions say who may call the back end's port, and how it speaks. Nothing
// set: everybody, in the clear.
type BackendOptions struct {
	PublishersFile string      // static tokens; empty: there are none
	JWT            *KeyOptions // nil: there are no JWTs
	Certificate    CertFiles
}

// callers are how the gateway knows who calls the back end's port, and how it
// shows there who it is.
type callers struct {
	gate     *access.Gate
	verifier *jwt.Verifier // nil: there are no JWTs
	pair     *certs.Pair   // nil: no TLS
}

// openCallers reads the files of publishers, their keys and the certificate.
func openCallers(o Options, m instruments) (c callers, sources []reload.Source, err error) {
	gate := access.Options{File: o.Backend.PublishersFile, Metrics: m.access, Logger: o.Logger.With("part", "backend-auth")}
	if o.Backend.JWT != nil {
		keys := *o.Backend.JWT
		keys.Holders, keys.Metrics, keys.Logger = jwt.Publishers, m.jwt, o.Logger.With("part", "backend-auth")
		if c.verifier, err = jwt.New(keys); err != nil {
			return c, nil, fmt.Errorf("the keys for publishers' tokens: %w", err)
		}
		gate.JWT = c.verifier
		sources = append(sources, reload.Source{Name: backendJWTSource, Load: c.verifier.Load})
	}
	if c.gate, err = access.New(gate); err != nil {
		return c, nil, fmt.Errorf("the publishers: %w", err)
	}
	sources = append(sources, reload.Source{Name: publishersSource, Load: c.gate.Load})
	if files := o.Backend.Certificate; files.Cert != "" {
		if c.pair, err = certs.Open(files.Cert, files.Key, m.backendCerts); err != nil {
			return c, nil, fmt.Errorf("the certificate of the back end's port: %w", err)
		}
		sources = append(sources, reload.Source{Name: backendTLSSource, Load: c.pair.Load})
	}
	return c, sources, nil
}

// run keeps fetched keys fresh until ctx ends.
func (c *callers) run(ctx context.Context) {
	if c.verifier != nil {
		_ = c.verifier.Run(ctx) // ends with ctx, without an error
	}
}

// tls is the configuration of the back end's port; nil without TLS.
func (c *callers) tls() *tls.Config {
	if c.pair == nil {
		return nil
	}
	return c.pair.Config(certs.ConfigOptions{})
}

func (c *callers) trouble() string {
	if c.pair == nil {
		return ""
	}
	return c.pair.Trouble(time.Now())
}

// name is who calls, for people; empty where nobody is told from others.
func (c *callers) name(r *http.Request) string {
	caller, err := c.gate.Check(r)
	if err != nil {
		return "" // it would not have been let in
	}
	return caller.Name()
}

// sender says who publishes. His connection is his to keep from now on, which
// it isn't for those who may not.
func (c *callers) sender(r *http.Request) (publish.Sender, error) {
	caller, err := c.gate.Check(r)
	if err != nil {
		return nil, err
	}
	if err := stay(r); err != nil {
		return nil, err
	}
	return caller, nil
}

// pushing says who passes events on, as sender does for who publishes.
func (c *callers) pushing(r *http.Request) (push.Sender, error) { return c.sender(r) }
