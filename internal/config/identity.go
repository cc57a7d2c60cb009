package config

import (
	"net/netip"
	"slices"
	"strings"
)

// Uses reports whether auth names a method.
func (c *Config) Uses(method string) bool { return slices.Contains(c.Auth.Items(), method) }

// Proxies are the items of trusted_proxies that are networks or addresses.
func (c *Config) Proxies() []netip.Prefix {
	proxies, _ := c.proxies()
	return proxies
}

// proxies also reports whether all items are networks or addresses.
func (c *Config) proxies() (found []netip.Prefix, all bool) {
	all = true
	for _, item := range c.TrustedProxies.Items() {
		network, err := netip.ParsePrefix(item)
		if err != nil {
			one, err := netip.ParseAddr(item)
			if err != nil {
				all = false
				continue
			}
			network = netip.PrefixFrom(one.WithZone("").Unmap(), one.Unmap().BitLen())
		}
		found = append(found, network.Masked())
	}
	return found, all
}

// checkIdentity checks that each way to prove an identity has what it needs,
// and that nothing is set for one that isn't used: whoever wrote that believes
// in a protection that isn't there.
func (c *Config) checkIdentity(add func(name, reason string)) {
	if c.Uses("none") && len(c.Auth.Items()) > 1 {
		add("auth", "has none beside another method, which would then protect nothing; remove one of them")
	}
	jwt := c.JWTSecret + c.JWTKeys + string(c.JWKSURLs)
	for _, need := range []struct{ method, has, what string }{
		{"jwt", jwt, "keys that tokens are checked with: set jwt_hmac_secret_file, jwt_public_keys_file or jwt_jwks_url"},
		{"tokens", c.DeviceTokens, "the file with the tokens' digests: set device_tokens_file"},
		{"mtls", c.ClientCAs, "the authorities of devices' certificates: set tls_client_ca_file"},
		{"mtls", c.TLSCert, "TLS: set tls_cert_file and tls_key_file"},
		{"tickets", c.TicketSecret, "secrets to sign them with: set ticket_secret_file"},
		{"proxy", c.ProxyDevice, "the header in which the proxy names the device: set proxy_device_header"},
		{"proxy", string(c.TrustedProxies), "the addresses of the proxies: set trusted_proxies"},
	} {
		if c.Uses(need.method) && need.has == "" {
			add("auth", "with "+need.method+" needs "+need.what)
		}
	}
	for _, use := range []struct{ method, name, value string }{
		{"jwt", "jwt_hmac_secret_file", c.JWTSecret}, {"jwt", "jwt_public_keys_file", c.JWTKeys}, {"jwt", "jwt_jwks_url", string(c.JWKSURLs)},
		{"tokens", "device_tokens_file", c.DeviceTokens}, {"tickets", "ticket_secret_file", c.TicketSecret},
		{"mtls", "tls_client_ca_file", c.ClientCAs}, {"mtls", "tls_client_crl_file", c.ClientCRLs},
		{"proxy", "proxy_device_header", c.ProxyDevice}, {"proxy", "proxy_groups_header", c.ProxyGroups},
	} {
		if use.value != "" && !c.Uses(use.method) {
			add(use.name, "has no effect while auth is "+string(c.Auth)+"; add "+use.method+" to auth, or remove it")
		}
	}
	if before, after, ok := strings.Cut(c.MTLSForm, "{device}"); !ok || strings.Contains(before+after, "{device}") {
		add("mtls_device_form", "must have {device} in it, once")
	}
	c.checkProxy(add)
}

func (c *Config) checkProxy(add func(name, reason string)) {
	for _, header := range [][2]string{{"proxy_device_header", c.ProxyDevice}, {"proxy_groups_header", c.ProxyGroups}} {
		if strings.ContainsFunc(header[1], notToken) {
			add(header[0], "can't be a header's name; allowed are letters, digits and !#$%&'*+-.^_`|~")
		}
		if slices.Contains([]string{"authorization", "cookie", "host", "connection", "last-event-id"}, strings.ToLower(header[1])) {
			add(header[0], "is a header that clients send for another purpose; choose one of your own, such as X-Device-ID")
		}
	}
	if c.ProxyDevice != "" && strings.EqualFold(c.ProxyDevice, c.ProxyGroups) {
		add("proxy_groups_header", "is the header with the device too; choose another one")
	}
	proxies, all := c.proxies()
	if !all {
		add("trusted_proxies", "holds something that is neither an address nor a network; write 10.0.0.7, 10.0.0.0/8 or fd00::/8")
	}
	if c.Uses("proxy") && slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		add("trusted_proxies", "trusts every address, so that anybody could be any device; write those of the proxies")
	}
}

// identityWarnings are what is allowed of that and yet likely to be regretted.
func (c *Config) identityWarnings() []string {
	var warnings []string
	if c.NoAuth && !c.Uses("none") {
		warnings = append(warnings, "insecure_no_auth has no effect with auth "+string(c.Auth))
	}
	return append(warnings, c.tokenWarnings()...)
}
