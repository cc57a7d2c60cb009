package main

import (
	"downlink/internal/config"
	"downlink/internal/gateway"
)

// identity is the settings by which devices are known, as the gateway takes
// them.
func identity(c *config.Config) gateway.IdentityOptions {
	o := gateway.IdentityOptions{Cookie: c.JWTCookie}
	if c.Uses("jwt") {
		keys := gateway.KeyOptions{
			HMACSecretFile: c.JWTSecret, PublicKeysFile: c.JWTKeys,
			Issuers: c.JWTIssuers.Items(), Audiences: c.JWTAudiences.Items(), Leeway: c.JWTLeeway,
		}
		for _, set := range c.KeySets() {
			keys.JWKS = append(keys.JWKS, gateway.JWKSOptions{
				URL: set.URL, Issuer: set.Issuer, CAFile: c.JWKSCA, Refresh: c.JWKSRefresh, MaxAge: c.JWKSMaxAge,
			})
		}
		o.JWT = &gateway.TokenOptions{Keys: keys, DeviceClaim: c.JWTDevice, GroupsClaim: c.JWTGroups}
	}
	if c.Uses("tokens") {
		o.TokensFile = c.DeviceTokens
	}
	if c.Uses("mtls") {
		o.Certificates = &gateway.ClientCertOptions{
			CAFile: c.ClientCAs, CRLFile: c.ClientCRLs, Grace: c.CRLGrace,
			Field: c.MTLSDevice, Form: c.MTLSForm, OrgUnits: c.MTLSGroups == "ou",
		}
	}
	if c.Uses("proxy") {
		o.Proxy = &gateway.ProxyOptions{DeviceHeader: c.ProxyDevice, GroupsHeader: c.ProxyGroups, Trusted: c.Proxies()}
	}
	if c.Uses("tickets") {
		o.Tickets = &gateway.TicketOptions{SecretFile: c.TicketSecret, TTL: c.TicketTTL, Session: c.TicketSession}
	}
	return o
}
