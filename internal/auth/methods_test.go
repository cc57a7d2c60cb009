package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"downlink/internal/certs"
	"downlink/internal/testkit"
)

// everything is a gateway that takes every kind of credential, and one of each.
type everything struct {
	methods      *Methods
	token        string // static, of "by-token"
	ca           *testkit.Authority
	tokens, crls string // files
}

func newEverything(t testing.TB) *everything {
	t.Helper()
	dir := t.TempDir()
	e := &everything{
		token: "dl_" + strings.Repeat("x", 43), ca: testkit.NewAuthority(t, "ca"),
		tokens: filepath.Join(dir, "tokens"), crls: filepath.Join(dir, "crl.pem"),
	}
	testkit.WriteCertificates(t, filepath.Join(dir, "ca.pem"), e.ca.Cert)
	testkit.Put(t, e.crls, e.ca.Revoke(nil))
	e.putToken(t, e.token, "by-token")
	authorities, err := certs.OpenAuthorities(certs.AuthorityOptions{CAFile: filepath.Join(dir, "ca.pem"), CRLFile: e.crls, Metrics: certs.NewMetrics(nil)})
	if err != nil {
		t.Fatal(err)
	}
	e.methods = &Methods{
		JWT: verifier(t, nil), Cookie: "downlink_token", Metrics: NewMetrics(nil),
		Proxy: NewProxy(ProxyOptions{DeviceHeader: "x-device", GroupsHeader: "x-groups", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}),
	}
	if e.methods.Certificates, err = NewCertificates(CertificateOptions{Authorities: authorities, Field: "cn", Form: "{device}"}); err != nil {
		t.Fatal(err)
	}
	if e.methods.Tokens, err = OpenTokens(e.tokens); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *everything) putToken(t testing.TB, token, device string, groups ...string) {
	t.Helper()
	line, err := NewTokenLine(token, device, groups, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Put(t, e.tokens, []byte("# tokens\n\n"+line+"\n"))
}

// offer is a request from a proxy with header lines, and certificates.
func offer(shown []*x509.Certificate, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/events", nil)
	r.RemoteAddr = "10.1.2.3:4567"
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	if shown != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: shown}
	}
	return r
}

// verdict is who a request comes from, or the failure.
func verdict(m *Methods, r *http.Request) string {
	id, err := m.Identify(r)
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Failure)
	}
	if err != nil {
		return err.Error()
	}
	return id.By + " " + id.Device
}

// TestTheFirstOfferDecides: certificate, token, proxy; and a bad one never
// falls through to the next.
func TestTheFirstOfferDecides(t *testing.T) {
	e := newEverything(t)
	good, strange := e.ca.Issue("by-cert", nil).Chain, testkit.NewAuthority(t, "strange").Issue("by-cert", nil).Chain
	jwt, bad := "Authorization: Bearer "+hs256(t, map[string]any{"sub": "by-jwt"}), "Authorization: Bearer "+hs256(t, map[string]any{"sub": "by-jwt", "exp": 1})
	static, wrong := "Authorization: Bearer "+e.token, "Authorization: Bearer "+e.token+"y"
	proxy := "X-Device: by-proxy"
	for name, c := range map[string]struct {
		r    *http.Request
		want string
	}{
		"nothing":                       {offer(nil), string(TokenMissing)},
		"certificate":                   {offer(good), "mtls by-cert"},
		"JWT":                           {offer(nil, jwt), "jwt by-jwt"},
		"static":                        {offer(nil, static), "tokens by-token"},
		"proxy":                         {offer(nil, proxy), "proxy by-proxy"},
		"all":                           {offer(good, jwt, proxy), "mtls by-cert"},
		"bad certificate, good others":  {offer(strange, jwt, proxy), string(CertificateUntrusted)},
		"good certificate, bad token":   {offer(good, bad), "mtls by-cert"},
		"expired JWT, good proxy":       {offer(nil, bad, proxy), string(TokenExpired)},
		"wrong static, good proxy":      {offer(nil, wrong, proxy), string(TokenUnknown)},
		"static in the form of a JWT":   {offer(nil, "Authorization: Bearer "+strings.Repeat("x", 20)+"."+strings.Repeat("y", 20)+".z"), string(TokenMalformed)},
		"two headers, good cookie":      {offer(nil, jwt, static, "Cookie: downlink_token="+e.token), string(TokenAmbiguous)},
		"empty header, good cookie":     {offer(nil, "Authorization: Bearer", "Cookie: downlink_token="+e.token), string(TokenMalformed)},
		"static in a cookie":            {offer(nil, "Cookie: downlink_token="+e.token), "tokens by-token"},
		"bad cookie, good proxy":        {offer(nil, "Cookie: downlink_token=x", proxy), string(TokenMalformed)},
		"other cookies and a proxy":     {offer(nil, "Cookie: a=b", "Authorization: Basic eDp5", proxy), "proxy by-proxy"},
		"TLS without certificate, JWT":  {offer([]*x509.Certificate{}, jwt), "jwt by-jwt"},
		"TLS without certificate alone": {offer([]*x509.Certificate{}), string(TokenMissing)},
	} {
		if got := verdict(e.methods, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if strings.Contains(c.want, " ") && (c.r.Header.Get("Authorization") != "" || c.r.Header.Get("Cookie") != "") {
			t.Errorf("%s: the request keeps its credential", name)
		}
	}
}

// TestWhatIsOffDoesntCount, and what is missing is named after what is on.
func TestWhatIsOffDoesntCount(t *testing.T) {
	e := newEverything(t)
	good, jwt, static, proxy := e.ca.Issue("by-cert", nil).Chain, "Authorization: Bearer "+hs256(t, nil), "Authorization: Bearer "+e.token, "X-Device: by-proxy"
	m := NewMetrics(nil)
	for name, c := range map[string]struct {
		methods Methods
		r       *http.Request
		want    string
	}{
		"certificate": {Methods{Proxy: e.methods.Proxy, Metrics: m}, offer(good, jwt, static), string(ProxyMissing)},
		"JWT":         {Methods{Tokens: e.methods.Tokens, Metrics: m}, offer(nil, jwt), string(TokenUnknown)},
		"static":      {Methods{JWT: e.methods.JWT, Metrics: m}, offer(nil, static), string(TokenMalformed)},
		"proxy":       {Methods{JWT: e.methods.JWT, Metrics: m}, offer(nil, proxy), string(TokenMissing)},
		"tokens":      {Methods{Certificates: e.methods.Certificates, Metrics: m}, offer(nil, jwt, proxy), string(CertificateMissing)},
	} {
		if got := verdict(&c.methods, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	_, err := e.methods.Identify(offer(nil))
	for _, way := range []string{"certificate", "Bearer", "proxy"} {
		if !strings.Contains(err.Error(), way) {
			t.Errorf("the answer doesn't say %q: %v", way, err)
		}
	}
}

func TestProxy(t *testing.T) {
	e := newEverything(t)
	with := func(peer string, header ...string) *http.Request {
		r := offer(nil, header...)
		r.RemoteAddr = peer
		return r
	}
	const trusted = "10.9.9.9:1"
	for name, c := range map[string]struct {
		r    *http.Request
		want string
	}{
		"trusted":             {with(trusted, "X-Device: 매장-12"), "proxy 매장-12"},
		"IPv6":                {with("[fd00::1%eth0]:1", "X-Device: a"), "proxy a"},
		"IPv4 in IPv6":        {with("[::ffff:10.0.0.1]:1", "X-Device: a"), "proxy a"},
		"untrusted":           {with("192.0.2.1:1", "X-Device: a"), string(ProxyUntrusted)},
		"near":                {with("11.0.0.1:1", "X-Device: a"), string(ProxyUntrusted)},
		"no address":          {with("", "X-Device: a"), string(ProxyUntrusted)},
		"forwarded":           {with("192.0.2.1:1", "X-Device: a", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1"), string(ProxyUntrusted)},
		"untrusted, groups":   {with("192.0.2.1:1", "X-Groups: a"), string(ProxyUntrusted)},
		"twice":               {with(trusted, "X-Device: a", "X-Device: a"), string(ProxyAmbiguous)},
		"twice, untrusted":    {with("192.0.2.1:1", "X-Device: a", "X-Device: a"), string(ProxyUntrusted)},
		"joined":              {with(trusted, "X-Device: a, b"), string(ProxyAmbiguous)},
		"groups twice":        {with(trusted, "X-Device: a", "X-Groups: a", "x-groups: b"), string(ProxyAmbiguous)},
		"groups alone":        {with(trusted, "X-Groups: a"), string(ProxyDevice)},
		"empty":               {with(trusted, "X-Device: "), string(ProxyDevice)},
		"everybody":           {with(trusted, "X-Device: *"), string(ProxyDevice)},
		"no UTF-8":            {with(trusted, "X-Device: a\xff"), string(ProxyDevice)},
		"too many groups":     {with(trusted, "X-Device: a", "X-Groups: "+strings.Repeat("x,", 30)+manyGroups(65)), string(ProxyGroups)},
		"a group with @":      {with(trusted, "X-Device: a", "X-Groups: north, @south"), string(ProxyGroups)},
		"a group that is bad": {with(trusted, "X-Device: a", "X-Groups: "+strings.Repeat("x", 200)), string(ProxyGroups)},
		"other spelling":      {with(trusted, "X_Device: a"), string(TokenMissing)},
	} {
		if got := verdict(e.methods, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	id, err := e.methods.Identify(with(trusted, "X-Device: a", "X-Groups: b, a,,b ,"))
	if err != nil || !slices.Equal(id.Groups, []string{"a", "b"}) || !id.Expires.IsZero() || id.Valid != nil {
		t.Errorf("%+v, %v", id, err)
	}
	for _, c := range []struct {
		peer, device, claimed string
	}{{"192.0.2.1:1", "pos-1", "pos-1"}, {"192.0.2.1:1", "*", ""}} {
		_, err := e.methods.Identify(with(c.peer, "X-Device: "+c.device))
		if failure, ok := errors.AsType[*Error](err); !ok || failure.Claimed != c.claimed {
			t.Errorf("%s claims %+v", c.device, err)
		}
	}
}

func manyGroups(n int) string {
	groups := make([]string, n)
	for i := range groups {
		groups[i] = "g" + string(rune('A'+i/26)) + string(rune('a'+i%26))
	}
	return strings.Join(groups, ",")
}

func TestCertificateNames(t *testing.T) {
	e := newEverything(t)
	uri := func(texts ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, text := range texts {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		}
	}
	dns := func(names ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.DNSNames = names }
	}
	for name, c := range map[string]struct {
		field, form string
		change      func(*x509.Certificate)
		want        string
	}{
		"cn":                  {"cn", "{device}", nil, "mtls by-cert"},
		"cn of a form":        {"cn", "by-{device}", nil, "mtls cert"},
		"cn of another form":  {"cn", "pos-{device}", nil, string(CertificateDevice)},
		"nothing left":        {"cn", "by-cert{device}", nil, string(CertificateDevice)},
		"cn missing":          {"cn", "{device}", func(c *x509.Certificate) { c.Subject.CommonName = "" }, string(CertificateDevice)},
		"cn is everybody":     {"cn", "{device}", func(c *x509.Certificate) { c.Subject.CommonName = "*" }, string(CertificateDevice)},
		"cn is a group":       {"cn", "{device}", func(c *x509.Certificate) { c.Subject.CommonName = "@tills" }, string(CertificateDevice)},
		"uri":                 {"san-uri", "spiffe://example.com/pos/{device}", uri("spiffe://example.com/pos/store-0001/pos-1"), "mtls store-0001/pos-1"},
		"uri escaped":         {"san-uri", "urn:pos:{device}", uri("urn:pos:%EB%A7%A4%EC%9E%A5-12"), "mtls 매장-12"},
		"uri with line end":   {"san-uri", "urn:pos:{device}", uri("urn:pos:a%0Ab"), string(CertificateDevice)},
		"uri with everybody":  {"san-uri", "urn:pos:{device}", uri("urn:pos:%2A"), string(CertificateDevice)},
		"uri beside others":   {"san-uri", "urn:pos:{device}", uri("https://x.example", "urn:pos:a"), "mtls a"},
		"uri of another":      {"san-uri", "urn:pos:{device}", uri("https://x.example/urn:pos:a"), string(CertificateDevice)},
		"two uris":            {"san-uri", "urn:pos:{device}", uri("urn:pos:a", "urn:pos:b"), string(CertificateDevice)},
		"the same uri twice":  {"san-uri", "urn:pos:{device}", uri("urn:pos:a", "urn:pos:a"), string(CertificateDevice)},
		"no uri, but a cn":    {"san-uri", "{device}", nil, string(CertificateDevice)},
		"dns":                 {"san-dns", "{device}.pos.example.com", dns("a.pos.example.com"), "mtls a"},
		"dns wildcard":        {"san-dns", "{device}.pos.example.com", dns("*.pos.example.com"), string(CertificateDevice)},
		"two dns names":       {"san-dns", "{device}", dns("a", "b"), string(CertificateDevice)},
		"dns of another form": {"san-dns", "{device}.pos.example.com", dns("a.example.com"), string(CertificateDevice)},
	} {
		judge, err := NewCertificates(CertificateOptions{Authorities: e.methods.Certificates.opts.Authorities, Field: c.field, Form: c.form})
		if err != nil {
			t.Fatal(err)
		}
		m := &Methods{Certificates: judge, Metrics: e.methods.Metrics}
		if got := verdict(m, offer(e.ca.Issue("by-cert", c.change).Chain)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, form := range []string{"", "device", "{device}{device}", "{Device}"} {
		if _, err := NewCertificates(CertificateOptions{Form: form}); err == nil {
			t.Errorf("the form %q is taken", form)
		}
	}
}

// TestCertificateIdentity: groups, the end, and whether it still stands.
func TestCertificateIdentity(t *testing.T) {
	e := newEverything(t)
	leaf := e.ca.Issue("a", func(c *x509.Certificate) {
		c.Subject.OrganizationalUnit = []string{"tills", "store-1", "tills"}
		c.NotAfter = time.Now().Add(time.Minute)
	})
	e.methods.Certificates.opts.OrgUnits = true
	id, err := e.methods.Identify(offer(leaf.Chain))
	if err != nil || !slices.Equal(id.Groups, []string{"store-1", "tills"}) || !id.Expires.Equal(leaf.Cert.NotAfter) || !id.Valid() {
		t.Fatalf("%+v, %v", id, err)
	}
	bad := e.ca.Issue("a", func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{strings.Repeat("x", 128)} })
	if got := verdict(e.methods, offer(bad.Chain)); got != string(CertificateGroups) {
		t.Errorf("a bad group: %s", got)
	}
	at := e.ca.Issue("a", func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{"@tills"} })
	if got := verdict(e.methods, offer(at.Chain)); got != string(CertificateGroups) {
		t.Errorf("a group with an @: %s", got)
	}
	testkit.Put(t, e.crls, e.ca.Revoke(nil, leaf.Cert))
	if _, err := e.methods.Certificates.opts.Authorities.Load(); err != nil || id.Valid() {
		t.Errorf("it stands although it was revoked: %v", err)
	}
	_, err = e.methods.Identify(offer(leaf.Chain))
	if failure, ok := errors.AsType[*Error](err); !ok || failure.Failure != CertificateRevoked || failure.Claimed != "a" {
		t.Errorf("anew: %+v", err)
	}
	testkit.Put(t, e.crls, testkit.NewAuthority(t, "stranger").Revoke(nil))
	if _, err := e.methods.Certificates.opts.Authorities.Load(); err != nil {
		t.Fatal(err)
	}
	_, err = e.methods.Identify(offer(leaf.Chain))
	if later, ok := errors.AsType[*LaterError](err); !ok || !errors.Is(err, ErrRevocationUnknown) || later.Claimed != "a" {
		t.Errorf("without a list: %v", err)
	}
}
