package main

import (
	"downlink/internal/config"
	"downlink/internal/gateway"
)

// backendOptions are the settings by which the back end's port knows its callers, as
// the gateway takes them.
func backendOptions(c *config.Config) gateway.BackendOptions {
	o := gateway.BackendOptions{Certificate: gateway.CertFiles{Cert: c.BackendTLSCert, Key: c.BackendTLSKey}}
	if c.BackendUses("tokens") {
		o.PublishersFile = c.Publishers
	}
	if c.BackendUses("jwt") {
		o.JWT = &gateway.KeyOptions{
			HMACSecretFile: c.BackendSecret, PublicKeysFile: c.BackendKeys,
			Issuers: c.BackendIssuers.Items(), Audiences: c.BackendAudience.Items(), Leeway: c.BackendLeeway,
		}
		if c.BackendJWKS != "" {
			o.JWT.JWKS = []gateway.JWKSOptions{{URL: c.BackendJWKS, CAFile: c.JWKSCA, Refresh: c.JWKSRefresh, MaxAge: c.JWKSMaxAge}}
		}
	}
	return o
}
