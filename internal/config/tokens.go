package config

import (
	"net/url"
	"strings"
)

// checkTokens checks how devices prove who they are.
func (c *Config) checkTokens(add func(name, reason string)) {
	if c.Auth == "jwt" && c.JWTSecret+c.JWTKeys+c.JWKSURL == "" {
		add("auth", "needs keys that tokens are checked with: set jwt_hmac_secret_file, jwt_public_keys_file or jwt_jwks_url")
	}
	for _, source := range [][2]string{{"jwt_hmac_secret_file", c.JWTSecret}, {"jwt_public_keys_file", c.JWTKeys}, {"jwt_jwks_url", c.JWKSURL}} {
		if c.Auth == "none" && source[1] != "" {
			add(source[0], "has no effect while auth is none; write --auth jwt, or remove it")
		}
	}
	if c.JWKSURL != "" {
		if reason := jwksFault(c.JWKSURL); reason != "" {
			add("jwt_jwks_url", reason)
		}
	}
	for _, claim := range [][2]string{{"jwt_device_claim", c.JWTDevice}, {"jwt_groups_claim", c.JWTGroups}} {
		if claim[1] == "" {
			add(claim[0], "is empty; write the name of a claim, such as sub")
		}
	}
	if c.JWTCookie == "" || strings.ContainsFunc(c.JWTCookie, notToken) {
		add("jwt_cookie", "can't be a cookie's name; allowed are letters, digits and !#$%&'*+-.^_`|~")
	}
}

// notToken: RFC 9110 §5.6.2.
func notToken(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// jwksFault says what is wrong with an address, without repeating any of it.
func jwksFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return "isn't an https or http URL with a host"
	case u.User != nil:
		return "has a user or password, which a key set doesn't need: public keys are for everybody"
	}
	return ""
}

// tokenWarnings are what is allowed of that and yet likely to be regretted.
func (c *Config) tokenWarnings() []string {
	if c.Auth != "jwt" {
		return nil
	}
	var warnings []string
	if c.NoAuth {
		warnings = append(warnings, "insecure_no_auth has no effect with auth jwt")
	}
	if c.JWKSURL != "" && len(c.JWTAudiences.Items()) == 0 {
		warnings = append(warnings, "jwt_jwks_url without jwt_audience: a token that the issuer made for any other service is accepted as a device's")
	}
	if u, err := url.Parse(c.JWKSURL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		warnings = append(warnings, "jwt_jwks_url is http: whoever can answer in its place can be any device")
	}
	return warnings
}
