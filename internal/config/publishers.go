package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
)

// BackendUses reports whether backend_auth names a method.
func (c *Config) BackendUses(method string) bool {
	return slices.Contains(c.BackendAuth.Items(), method)
}

// checkPublishers checks who may call the back end, as checkIdentity does for
// devices.
func (c *Config) checkPublishers(add func(name, reason string)) {
	c.checkReach(add, "backend_listen", c.BackendListen, "send to every device", "127.0.0.1:9090", "publish")
	c.checkReach(add, "governor_listen", c.GovernorListen, "change what is let in", "127.0.0.1:9095", "ask")
	if c.BackendUses("none") && len(c.BackendAuth.Items()) > 1 {
		add("backend_auth", "has none beside another method, which would then protect nothing; remove one of them")
	}
	jwt := [][2]string{
		{"backend_jwt_hmac_secret_file", c.BackendSecret}, {"backend_jwt_public_keys_file", c.BackendKeys},
		{"backend_jwt_jwks_url", c.BackendJWKS}, {"backend_jwt_audience", string(c.BackendAudience)},
	}
	switch {
	case c.BackendUses("tokens") && c.Publishers == "":
		add("backend_auth", "with tokens needs the file with the tokens' digests: set publishers_file")
	case c.BackendUses("jwt") && c.BackendSecret+c.BackendKeys+c.BackendJWKS == "":
		add("backend_auth", "with jwt needs keys that tokens are checked with: set backend_jwt_hmac_secret_file, backend_jwt_public_keys_file or backend_jwt_jwks_url")
	case c.BackendUses("jwt") && len(c.BackendAudience.Items()) == 0:
		add("backend_auth", "with jwt needs an audience, by which publishers' tokens are told from others of the same keys: set backend_jwt_audience")
	}
	unused := func(method string, setting [2]string) {
		if setting[1] != "" && !c.BackendUses(method) {
			add(setting[0], "has no effect while backend_auth is "+string(c.BackendAuth)+"; add "+method+" to backend_auth, or remove it")
		}
	}
	unused("tokens", [2]string{"publishers_file", c.Publishers})
	for _, setting := range jwt {
		unused("jwt", setting)
	}
	if c.BackendJWKS != "" {
		if reason := jwksFault(c.BackendJWKS); reason != "" {
			add("backend_jwt_jwks_url", reason)
		}
	}
	c.checkAudiences(add)
}

// checkReach checks the address of a port that knows its callers by backend_auth.
func (c *Config) checkReach(add func(name, reason string), name, address, danger, loop, does string) {
	host, err := splitAddress(address)
	switch {
	case err != nil:
		add(name, err.Error())
	case c.BackendUses("none") && !c.OpenBackend && !loopback(host):
		add(name, fmt.Sprintf("can be reached from outside while backend_auth is none, so that anybody could %s; "+
			"use --%s %s, set --backend-auth, or say --insecure-open-backend if something in front decides who may %s", danger, flagName(name), loop, does))
	}
}

// checkAudiences: with the same keys and the same audience, who may sign tokens
// of devices could sign those of publishers by adding a claim.
func (c *Config) checkAudiences(add func(name, reason string)) {
	for _, audience := range c.BackendAudience.Items() {
		if slices.Contains(c.JWTAudiences.Items(), audience) {
			add("backend_jwt_audience", "names an audience of devices' tokens too (jwt_audience); choose one for publishers alone")
			return
		}
	}
}

// publisherWarnings are what is allowed of that and yet likely to be regretted.
func (c *Config) publisherWarnings(command string) []string {
	var warnings []string
	name, address, danger := "backend_listen", c.BackendListen, "send to every device"
	if command == Governor {
		name, address, danger = "governor_listen", c.GovernorListen, "change what is let in"
	}
	host, _, err := net.SplitHostPort(address)
	outside := err == nil && !loopback(host)
	switch {
	case outside && c.BackendUses("none") && c.OpenBackend:
		warnings = append(warnings, fmt.Sprintf("%s %s with backend_auth none: whoever reaches this port can %s", name, address, danger))
	case outside && c.BackendTLSCert == "":
		warnings = append(warnings, fmt.Sprintf("%s %s without TLS: whoever sees the traffic has the callers' tokens; set backend_tls_cert_file unless something in front speaks TLS", name, address))
	}
	if c.OpenBackend && !c.BackendUses("none") {
		warnings = append(warnings, "insecure_open_backend has no effect with backend_auth "+string(c.BackendAuth))
	}
	if u, err := url.Parse(c.BackendJWKS); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		warnings = append(warnings, "backend_jwt_jwks_url is http: whoever can answer in its place can do everything")
	}
	return warnings
}
