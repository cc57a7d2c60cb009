package config

import (
	"net/url"
	"strings"
)

// A KeySet is one item of jwt_jwks_url.
type KeySet struct {
	Issuer string // whose tokens it is for; empty: those of all who have no set of their own
	URL    string
}

// KeySets are the items of jwt_jwks_url.
func (c *Config) KeySets() []KeySet {
	var sets []KeySet
	for _, item := range c.JWKSURLs.Items() {
		set := KeySet{URL: item}
		if at := strings.LastIndexAny(item, " \t"); at >= 0 {
			set = KeySet{Issuer: strings.TrimSpace(item[:at]), URL: item[at+1:]}
		}
		sets = append(sets, set)
	}
	return sets
}

// checkTokens checks how tokens are checked.
func (c *Config) checkTokens(add func(name, reason string)) {
	seen := make(map[string]bool)
	for _, set := range c.KeySets() {
		if reason := jwksFault(set.URL); reason != "" {
			add("jwt_jwks_url", reason)
		}
		switch {
		case seen[set.Issuer] && set.Issuer == "":
			add("jwt_jwks_url", "has several addresses without an issuer; write whose tokens each is for: ISSUER URL, ISSUER URL")
		case seen[set.Issuer]:
			add("jwt_jwks_url", "names an issuer twice; an issuer has one key set")
		}
		seen[set.Issuer] = true
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
		return "isn't an https or http URL with a host, or an issuer, a space and such a URL"
	case u.User != nil:
		return "has a user or password, which a key set doesn't need: public keys are for everybody"
	}
	return ""
}

// tokenWarnings are what is allowed of that and yet likely to be regretted.
func (c *Config) tokenWarnings() []string {
	if !c.Uses("jwt") {
		return nil
	}
	var warnings []string
	others := false // whether a key set vouches for whoever has none
	for _, set := range c.KeySets() {
		others = others || set.Issuer == ""
		if u, err := url.Parse(set.URL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
			warnings = append(warnings, "jwt_jwks_url is http: whoever can answer in its place can be any device")
		}
	}
	public := "jwt_jwks_url"
	if c.JWTKeys != "" {
		public = "jwt_public_keys_file"
	}
	if c.JWKSURLs+List(c.JWTKeys) != "" && len(c.JWTAudiences.Items()) == 0 {
		warnings = append(warnings, public+" without jwt_audience: a token that the issuer made for any other service is accepted as a device's")
	}
	if (others || c.JWTKeys != "") && len(c.JWTIssuers.Items()) == 0 {
		warnings = append(warnings, public+" without jwt_issuer: a token of whoever shares these keys is accepted")
	}
	return warnings
}
