package auth

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"downlink/internal/event"
)

// ProxyOptions say who in front of the gateway identifies devices, and how.
type ProxyOptions struct {
	DeviceHeader string         // holds the device ID
	GroupsHeader string         // holds the groups, with commas between; empty: there are none
	Trusted      []netip.Prefix // addresses of the proxies
}

// Proxy takes the word of a proxy in front of the gateway. Safe for concurrent
// use.
type Proxy struct {
	device, groups string // in canonical form
	trusted        []netip.Prefix
}

// NewProxy makes it.
func NewProxy(o ProxyOptions) *Proxy {
	return &Proxy{http.CanonicalHeaderKey(o.DeviceHeader), http.CanonicalHeaderKey(o.GroupsHeader), o.Trusted}
}

// spoke reports whether somebody, whoever it is, has sent a header that a proxy
// would.
func (p *Proxy) spoke(r *http.Request) bool {
	return r.Header[p.device] != nil || p.groups != "" && r.Header[p.groups] != nil
}

// identify takes device and groups from the headers. Who isn't trusted is told
// so, instead of being answered as if the headers weren't there: that is a
// proxy that was forgotten in the settings, or somebody who tries it.
func (p *Proxy) identify(r *http.Request) (Identity, error) {
	if !p.trusts(r.RemoteAddr) {
		return Identity{}, claiming(r.Header.Get(p.device), failed(ProxyUntrusted, "the headers that name a device count only from a trusted proxy, and this address is none"))
	}
	devices := r.Header[p.device]
	var groups []string
	if p.groups != "" {
		groups = r.Header[p.groups]
	}
	// What adds a header to one that is there may join them with a comma
	// (RFC 9110 §5.3).
	if len(devices) > 1 || len(groups) > 1 || len(devices) == 1 && strings.Contains(devices[0], ",") {
		return Identity{}, failed(ProxyAmbiguous, "a header that names the device or its groups came twice: the proxy in front must replace what a client sends, not add to it")
	}
	if len(devices) == 0 || event.ValidateDevice(devices[0]) != nil {
		return Identity{}, failed(ProxyDevice, "the proxy's header names no device ID: 1 to 128 bytes of text that begin with neither * nor @")
	}
	id := Identity{By: "proxy", Device: strings.Clone(devices[0])}
	if len(groups) == 1 {
		var why string
		if id.Groups, why = tidy(items(groups[0])); why != "" {
			return Identity{}, failed(ProxyGroups, "the proxy's header with the groups "+why)
		}
	}
	return id, nil
}

// items are the texts between commas that aren't empty.
func items(list string) []string {
	var found []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			found = append(found, strings.Clone(item))
		}
	}
	return found
}

// trusts reports whether an address, as in http.Request.RemoteAddr, is a
// trusted proxy's.
func (p *Proxy) trusts(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.trusted, func(trusted netip.Prefix) bool { return trusted.Contains(ip) })
}
