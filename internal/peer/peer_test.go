package peer

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func proxies(t testing.TB, networks ...string) Proxies {
	t.Helper()
	var p Proxies
	for _, n := range networks {
		p = append(p, netip.MustParsePrefix(n))
	}
	return p
}

func TestClient(t *testing.T) {
	trusted := proxies(t, "10.0.0.0/8", "2001:db8:ffff::/48")
	for name, c := range map[string]struct {
		from   string
		header http.Header
		want   string
	}{
		"nobody in front":          {"192.0.2.1", nil, "192.0.2.1"},
		"a stranger's word":        {"192.0.2.1", http.Header{"X-Forwarded-For": {"198.51.100.7"}}, "192.0.2.1"},
		"a proxy's word":           {"10.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7"}}, "198.51.100.7"},
		"invented before it":       {"10.0.0.1", http.Header{"X-Forwarded-For": {"203.0.113.9, 198.51.100.7"}}, "198.51.100.7"},
		"invented line before it":  {"10.0.0.1", http.Header{"X-Forwarded-For": {"203.0.113.9", "198.51.100.7"}}, "198.51.100.7"},
		"two proxies":              {"10.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7,10.1.2.3"}}, "198.51.100.7"},
		"only proxies":             {"10.0.0.1", http.Header{"X-Forwarded-For": {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3"},
		"a proxy that says naught": {"10.0.0.1", nil, "10.0.0.1"},
		"with port":                {"10.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7:5678"}}, "198.51.100.7"},
		"IPv6 with port":           {"10.0.0.1", http.Header{"X-Forwarded-For": {"[2001:db8::1]:5678"}}, "2001:db8::1"},
		"IPv6 in brackets":         {"10.0.0.1", http.Header{"X-Forwarded-For": {"[2001:db8::1]"}}, "2001:db8::1"},
		"IPv4 in brackets":         {"10.0.0.1", http.Header{"X-Forwarded-For": {"[192.0.2.1]"}}, "10.0.0.1"},
		"IPv4 as IPv6":             {"10.0.0.1", http.Header{"X-Forwarded-For": {"::ffff:198.51.100.7"}}, "198.51.100.7"},
		"rubbish":                  {"10.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7, unknown"}}, "10.0.0.1"},
		"rubbish before a proxy":   {"10.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7,,10.0.0.2"}}, "10.0.0.2"},
		"empty":                    {"10.0.0.1", http.Header{"X-Forwarded-For": {""}}, "10.0.0.1"},
		"Forwarded":                {"10.0.0.1", http.Header{"Forwarded": {`for=203.0.113.9, For="198.51.100.7:80";proto=https;by=10.0.0.1`}}, "198.51.100.7"},
		"Forwarded IPv6":           {"2001:db8:ffff::2", http.Header{"Forwarded": {`proto=https; for="[2001:db8::1]:80"`}}, "2001:db8::1"},
		"Forwarded obfuscated":     {"10.0.0.1", http.Header{"Forwarded": {`for=198.51.100.7, for=_hidden`}}, "10.0.0.1"},
		"Forwarded twice":          {"10.0.0.1", http.Header{"Forwarded": {`for=198.51.100.7;for=198.51.100.8`}}, "10.0.0.1"},
		"Forwarded without for":    {"10.0.0.1", http.Header{"Forwarded": {`proto=https`}}, "10.0.0.1"},
		"Forwarded half quoted":    {"10.0.0.1", http.Header{"Forwarded": {`for="198.51.100.7`}}, "10.0.0.1"},
		"both":                     {"10.0.0.1", http.Header{"Forwarded": {`for=203.0.113.9`}, "X-Forwarded-For": {"198.51.100.7"}}, "198.51.100.7"},
	} {
		if got := trusted.Client(netip.MustParseAddr(c.from), c.header); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[fe80::1%eth0]:80": "fe80::1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
	} {
		if got := Of(remote); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v", remote, got)
		}
	}
	for _, remote := range []string{"", "@", "pipe", "localhost:80"} {
		if got := Of(remote); got.IsValid() {
			t.Errorf("%q: %v", remote, got)
		}
	}
}

func TestSite(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := Site(netip.MustParseAddr(a)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v", a, got)
		}
	}
	if got := Site(netip.Addr{}); got.IsValid() {
		t.Error(got)
	}
}

// FuzzClient: whatever stands in the headers, the answer is what the trusted
// proxy appended, as long as that is an address.
func FuzzClient(f *testing.F) {
	f.Add("203.0.113.9", `for=1.2.3.4`)
	f.Add(`", for=`, `"`)
	f.Add("10.0.0.2, ::ffff:10.0.0.1, [::1", "for=[::1%25a]:99999")
	trusted := proxies(f, "10.0.0.0/8")
	from, client := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("198.51.100.7")
	f.Fuzz(func(t *testing.T, invented, more string) {
		if strings.ContainsAny(invented+more, "\r\n\x00") {
			return
		}
		for name, said := range map[string]string{"X-Forwarded-For": client.String(), "Forwarded": "for=" + client.String()} {
			for _, h := range []http.Header{{name: {invented, more, said}}, {name: {invented + "," + said}}} {
				if got := trusted.Client(from, h); got != client {
					t.Errorf("%v: %v", h, got)
				}
			}
			if got := trusted.Client(client, http.Header{name: {invented, more}}); got != client {
				t.Errorf("a stranger was believed: %q %q: %v", invented, more, got)
			}
			if got := trusted.Client(from, http.Header{name: {invented, more}}); !got.IsValid() || got.Zone() != "" || got.Is4In6() {
				t.Errorf("%q %q: %v", invented, more, got)
			}
		}
	})
}
