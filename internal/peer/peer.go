// Package peer owns the question where a request comes from: the address of
// its connection, or what a proxy in front says of it. It counts and refuses
// nobody. Its invariant: nothing that a stranger writes into a header is
// believed, only what a trusted proxy has added behind it.
package peer

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks whose word counts. The zero value trusts nobody.
type Proxies []netip.Prefix

// Trust reports whether a is the address of a trusted proxy.
func (p Proxies) Trust(a netip.Addr) bool {
	for _, network := range p {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// Client is the address that a request comes from, for a connection from the
// address of. Where that is a trusted proxy, it is the last address of
// X-Forwarded-For that isn't one; without that header, of Forwarded (RFC 7239).
// Each proxy adds the address that it has seen at the end, so everything before
// that one may be invented. What can't be read ends the search: then it is the
// proxy that passed it on.
func (p Proxies) Client(of netip.Addr, h http.Header) netip.Addr {
	if !p.Trust(of) {
		return of
	}
	name, read := "X-Forwarded-For", address
	if len(h[name]) == 0 {
		name, read = "Forwarded", forwardedFor
	}
	for _, line := range slices.Backward(h[name]) {
		for rest, more := line, true; more; {
			var last string
			rest, last, more = cutLast(rest)
			a, ok := read(last)
			if !ok {
				return of
			}
			if of = a; !p.Trust(of) {
				return of
			}
		}
	}
	return of
}

// cutLast cuts the last element off a list.
func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// Of is the address in http.Request.RemoteAddr; the zero value if there is none.
func Of(remote string) netip.Addr {
	a, _ := address(remote)
	return a
}

// address reads an address, which may be in brackets and have a port.
func address(text string) (netip.Addr, bool) {
	text = strings.Trim(text, " \t")
	a, err := netip.ParseAddr(text)
	if err != nil {
		if with, err := netip.ParseAddrPort(text); err == nil {
			a = with.Addr()
		} else if inner, ok := bracketed(text); !ok {
			return netip.Addr{}, false
		} else if a, err = netip.ParseAddr(inner); err != nil || !a.Is6() {
			return netip.Addr{}, false
		}
	}
	return a.Unmap().WithZone(""), true
}

func bracketed(text string) (inner string, ok bool) {
	if inner, ok = strings.CutPrefix(text, "["); !ok {
		return "", false
	}
	return strings.CutSuffix(inner, "]")
}

// forwardedFor reads the parameter for of one element of Forwarded (RFC 7239 §4).
// Unknown and obfuscated nodes are no addresses, and neither is an element that
// names two.
func forwardedFor(element string) (a netip.Addr, ok bool) {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, has := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !has || !strings.EqualFold(name, "for") {
			continue
		}
		if ok {
			return netip.Addr{}, false
		}
		if quoted, isQuoted := strings.CutPrefix(value, `"`); isQuoted {
			if value, isQuoted = strings.CutSuffix(quoted, `"`); !isQuoted {
				return netip.Addr{}, false
			}
		}
		if a, ok = address(value); !ok {
			return netip.Addr{}, false
		}
	}
	return a, ok
}

// subscriber is what one customer of a network has of IPv6 (RFC 6177): whoever
// has one address of it has them all.
const subscriber = 64

// Site is what an address is counted as: itself, or for IPv6 its /64.
func Site(a netip.Addr) netip.Addr {
	if !a.Is6() || a.Is4In6() {
		return a.Unmap()
	}
	network, err := a.WithZone("").Prefix(subscriber)
	if err != nil {
		return a // it has 128 bits: not reached
	}
	return network.Addr()
}
