package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// rules say which addresses may be dialled.
type rules struct {
	allow, deny []netip.Prefix
}

func newRules(allow, deny []string) (r rules, err error) {
	if r.allow, err = prefixes(allow); err != nil {
		return r, fmt.Errorf("dial_allow: %w", err)
	}
	if r.deny, err = prefixes(deny); err != nil {
		return r, fmt.Errorf("dial_deny: %w", err)
	}
	return r, nil
}

// prefixes reads networks and single addresses.
func prefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if a, alone := netip.ParseAddr(text); err != nil && alone == nil && a.Zone() == "" {
			a = a.Unmap()
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", clip(text))
		}
		if p.Addr().Is4In6() {
			if p.Bits() < 96 {
				return nil, fmt.Errorf("%q holds IPv4 and IPv6 addresses together; write two networks", clip(text))
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// A special network is one whose addresses are seldom a device's, and often
// something that must not be reached by whoever writes the inventory.
type special struct {
	network netip.Prefix
	what    string
}

// specials, from the registries of special-purpose addresses (RFC 6890 and what
// updates it), and the addresses at which clouds hand out credentials. The
// narrower ones stand first: the first match counts.
var specials = [...]special{
	{netip.MustParsePrefix("169.254.169.254/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("169.254.170.2/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("169.254.170.23/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("169.254.169.123/32"), "is a cloud's time service"},
	{netip.MustParsePrefix("169.254.169.253/32"), "is a cloud's resolver"},
	{netip.MustParsePrefix("100.100.100.200/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("168.63.129.16/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("192.0.0.192/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("fe80::a9fe:a9fe/128"), "is a cloud's metadata service"},
	{netip.MustParsePrefix("127.0.0.0/8"), "is this machine's own (loopback)"},
	{netip.MustParsePrefix("::1/128"), "is this machine's own (loopback)"},
	{netip.MustParsePrefix("0.0.0.0/8"), "is no address (unspecified)"},
	{netip.MustParsePrefix("::/128"), "is no address (unspecified)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "is link-local"},
	{netip.MustParsePrefix("fe80::/10"), "is link-local"},
	{netip.MustParsePrefix("fec0::/10"), "is site-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "is a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "is a multicast address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "is reserved"},
	{netip.MustParsePrefix("240.0.0.0/4"), "is reserved"},
	{netip.MustParsePrefix("100::/64"), "is reserved"},
}

// refuse says why an address may not be dialled; empty: it may. An IPv4 address
// in IPv6 clothes is refused like the IPv4 address.
func (r *rules) refuse(a netip.Addr) string {
	a = a.WithZone("").Unmap()
	forms := append([]netip.Addr{a}, inner(a)...)
	for _, f := range forms {
		if contains(r.deny, f) {
			return "is in dial_deny"
		}
		for _, s := range specials {
			if !s.network.Contains(f) {
				continue
			}
			if !r.names(s.network, a) {
				return s.what + "; if it is meant, dial_allow must name it, or a network inside " + s.network.String()
			}
			break
		}
	}
	if len(r.allow) > 0 && !contains(r.allow, a) {
		return "is not in dial_allow"
	}
	return ""
}

// names reports whether the settings allow an address of a special network by
// an entry that can't have meant anything else.
func (r *rules) names(network netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(r.allow, func(p netip.Prefix) bool {
		return p.Contains(a) && p.Bits() >= network.Bits() && network.Contains(p.Addr())
	})
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Networks of IPv6 addresses that mean an IPv4 address.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291 §2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	sixToFour  = netip.MustParsePrefix("2002::/16") // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32") // RFC 4380
)

// inner are the IPv4 addresses that an IPv6 address may be a way to.
func inner(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case localNAT64.Contains(a):
		return localInner(b)
	case sixToFour.Contains(a):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(a):
		client := binary.BigEndian.Uint32(b[12:]) ^ 0xffffffff // hidden from NATs that rewrite addresses
		return []netip.Addr{
			netip.AddrFrom4([4]byte(b[4:8])),
			netip.AddrFrom4([4]byte{byte(client >> 24), byte(client >> 16), byte(client >> 8), byte(client)}),
		}
	case nat64.Contains(a), translated.Contains(a), isatap(b):
		return []netip.Addr{last}
	case compatible.Contains(a) && binary.BigEndian.Uint32(b[12:]) > 0xffff: // :: and ::1 are themselves
		return []netip.Addr{last}
	}
	return nil
}

// localInner are the addresses that one of a site's own NAT64 may mean: its
// operator chooses where in it they stand (RFC 6052 §2.2). Where nothing but
// zeros stands, none does.
func localInner(b [16]byte) []netip.Addr {
	var out []netip.Addr
	for _, v4 := range [][4]byte{{b[6], b[7], b[9], b[10]}, {b[7], b[9], b[10], b[11]}, {b[9], b[10], b[11], b[12]}, [4]byte(b[12:])} {
		if v4[0] != 0 {
			out = append(out, netip.AddrFrom4(v4))
		}
	}
	if len(out) == 0 {
		out = append(out, netip.AddrFrom4([4]byte(b[12:])))
	}
	return out
}

// isatap reports whether an address' last half is ISATAP's (RFC 5214 §6.1).
func isatap(b [16]byte) bool {
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
