package egress

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func addr(t interface{ Fatal(...any) }, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRules(t *testing.T) {
	for _, tt := range []struct {
		allow, deny string
		addr, want  string // want: a part of the refusal; empty: allowed
	}{
		{"", "", "10.1.2.3", ""},
		{"", "", "203.0.113.9", ""},
		{"", "", "2001:db8::1", ""},
		{"", "", "fd12::1", ""},
		{"", "", "127.0.0.1", "loopback"},
		{"", "", "127.9.9.9", "loopback"},
		{"", "", "::1", "loopback"},
		{"", "", "::ffff:127.0.0.1", "loopback"},
		{"", "", "64:ff9b::7f00:1", "loopback"},
		{"", "", "64:ff9b:1::7f00:1", "loopback"},
		{"", "", "64:ff9b:1:7f00:0:1::", "loopback"},
		{"", "", "64:ff9b:1::a01:203", ""},
		{"", "", "64:ff9b:1:a01:2:300::", ""},
		{"", "", "64:ff9b:1::", "unspecified"},
		{"", "", "2002:7f00:1::", "loopback"},
		{"", "", "2001:0:7f00:1::", "loopback"},
		{"", "", "2001:0:cb00:7109::80ff:fffe", "loopback"}, // Teredo hides the client's address
		{"", "", "::127.0.0.1", "loopback"},
		{"", "", "::ffff:0:127.0.0.1", "loopback"},
		{"", "", "2001:db8::5efe:127.0.0.1", "loopback"},
		{"", "", "2001:db8::200:5efe:7f00:1", "loopback"},
		{"", "", "0.0.0.0", "unspecified"},
		{"", "", "0.1.2.3", "unspecified"},
		{"", "", "::", "unspecified"},
		{"", "", "169.254.7.7", "link-local"},
		{"", "", "fe80::1", "link-local"},
		{"", "", "fe80::1%eth0", "link-local"},
		{"", "", "169.254.169.254", "metadata"},
		{"", "", "::ffff:169.254.169.254", "metadata"},
		{"", "", "64:ff9b::a9fe:a9fe", "metadata"},
		{"", "", "fd00:ec2::254", "metadata"},
		{"", "", "fd20:ce::254", "metadata"},
		{"", "", "100.100.100.200", "metadata"},
		{"", "", "168.63.129.16", "metadata"},
		{"", "", "224.0.0.1", "multicast"},
		{"", "", "ff02::1", "multicast"},
		{"", "", "255.255.255.255", "reserved"},

		{"10.0.0.0/8", "", "10.1.2.3", ""},
		{"10.0.0.0/8", "", "::ffff:10.1.2.3", ""},
		{"10.0.0.0/8", "", "11.1.2.3", "is not in dial_allow"},
		{"10.0.0.0/8", "", "64:ff9b::a01:203", "is not in dial_allow"},
		{"10.1.2.3", "", "10.1.2.3", ""},
		{"10.1.2.3", "", "10.1.2.4", "is not in dial_allow"},
		// Only who means a special network gets it.
		{"0.0.0.0/0", "", "127.0.0.1", "loopback"},
		{"0.0.0.0/0", "", "169.254.169.254", "metadata"},
		{"127.0.0.0/8", "", "127.0.0.1", ""},
		{"127.0.0.1", "", "127.0.0.1", ""},
		{"127.0.0.1", "", "127.0.0.2", "loopback"},
		{"127.0.0.0/8", "", "::1", "loopback"},
		{"127.0.0.0/8", "", "10.0.0.1", "is not in dial_allow"},
		{"127.0.0.0/8", "", "64:ff9b::7f00:1", "loopback"},
		{"169.254.0.0/16", "", "169.254.7.7", ""},
		{"169.254.0.0/16", "", "169.254.169.254", "metadata"},
		{"169.254.169.254", "", "169.254.169.254", ""},
		{"::1", "", "::1", ""},
		{"fe80::/10", "", "fe80::1%eth0", ""},

		{"", "10.9.0.0/16", "10.9.1.1", "dial_deny"},
		{"", "10.9.0.0/16", "10.8.1.1", ""},
		{"10.0.0.0/8", "10.9.0.0/16", "10.9.1.1", "dial_deny"},
		{"", "10.9.0.0/16", "64:ff9b::a09:101", "dial_deny"},
		{"", "::ffff:10.9.0.0/112", "10.9.1.1", "dial_deny"},
		{"127.0.0.0/8", "127.0.0.1", "127.0.0.1", "dial_deny"},
	} {
		r, err := newRules(strings.Fields(tt.allow), strings.Fields(tt.deny))
		if err != nil {
			t.Fatal(err)
		}
		why := r.refuse(addr(t, tt.addr))
		if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("allow %q, deny %q: %s: %q, want %q", tt.allow, tt.deny, tt.addr, why, tt.want)
		}
	}
	for _, bad := range []string{"10.0.0.0/33", "loopback", "", "10.0.0", "::ffff:0.0.0.0/32", "fe80::1%eth0"} {
		if _, err := newRules([]string{bad}, nil); err == nil {
			t.Errorf("%q is a network", bad)
		}
	}
}

// TestDisguises: whatever IPv6 clothes an IPv4 address that is refused wears, it
// is refused.
func TestDisguises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v4s []special
		for _, s := range specials {
			if s.network.Addr().Is4() {
				v4s = append(v4s, s)
			}
		}
		s := rapid.SampledFrom(v4s).Draw(t, "network")
		b := s.network.Addr().As4()
		for i := range b {
			free := min(max(8*(i+1)-s.network.Bits(), 0), 8)
			b[i] |= rapid.Byte().Draw(t, "byte") & byte(1<<free-1)
		}
		x := netip.AddrFrom4(b)
		as := func(prefix string, at ...int) netip.Addr {
			out := addr(t, prefix).As16()
			for i, p := range at {
				out[p] = b[i]
			}
			return netip.AddrFrom16(out)
		}
		hidden := as("2001:0:c000:201::", 12, 13, 14, 15).As16()
		for i := 12; i < 16; i++ {
			hidden[i] ^= 0xff
		}
		forms := []netip.Addr{
			x, netip.AddrFrom16(x.As16()), as("64:ff9b::", 12, 13, 14, 15), as("64:ff9b:1::", 12, 13, 14, 15), as("64:ff9b:1::", 6, 7, 9, 10),
			as("2002::", 2, 3, 4, 5), as("2001::", 4, 5, 6, 7), netip.AddrFrom16(hidden), as("::ffff:0:0:0", 12, 13, 14, 15), as("2001:db8::5efe:0:0", 12, 13, 14, 15),
		}
		r, err := newRules(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b[0] == 0 { // where zeros stand, a site's own NAT64 means nothing
			forms = slices.DeleteFunc(forms, localNAT64.Contains)
		}
		if i := slices.IndexFunc(forms, func(a netip.Addr) bool { return r.refuse(a) == "" }); i >= 0 {
			t.Fatalf("%s is allowed as %s", x, forms[i])
		}
	})
}
