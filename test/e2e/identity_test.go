package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// certified is a gateway that identifies devices by their certificates.
type certified struct {
	*guarded
	ca *testkit.Authority
}

// startCertified starts one with an authority.
func startCertified(t *testing.T, args ...string) *certified {
	t.Helper()
	return startTrusting(t, nil, args...)
}

// startTrusting starts one with an authority of its own and others, each with an
// empty revocation list.
func startTrusting(t *testing.T, others []*testkit.Authority, args ...string) *certified {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testkit.Certificates(t, dir)
	c := &certified{ca: testkit.NewAuthority(t, "pos authority")}
	var trusted []*x509.Certificate
	var lists []byte
	for _, ca := range append(others, c.ca) {
		trusted = append(trusted, ca.Cert)
		lists = append(lists, ca.Revoke(nil)...)
	}
	testkit.WriteCertificates(t, file("devices-ca.pem"), trusted...)
	testkit.Put(t, file("crl.pem"), lists)
	c.guarded = &guarded{t: t, dir: dir, Gateway: program.StartGateway(t, append([]string{
		"--log", "file:" + file("log"), "--tls-cert-file", file("server.pem"), "--tls-key-file", file("server-key.pem"),
		"--auth", "mtls", "--tls-client-ca-file", file("devices-ca.pem"), "--tls-client-crl-file", file("crl.pem"), "--mtls-groups", "ou", "--retry", "100ms",
	}, args...)...)}
	return c
}

func (c *certified) file(name string) string { return filepath.Join(c.dir, name) }

// as is a transport that shows a certificate.
func (c *certified) as(leaf testkit.Leaf, http2 bool, version uint16) *http.Transport {
	c.t.Helper()
	leaf.Write(c.t, c.dir, "shown")
	pair, err := tls.LoadX509KeyPair(c.file("shown.pem"), c.file("shown-key.pem"))
	if err != nil {
		c.t.Fatal(err)
	}
	transport := c.transport(http2)
	transport.TLSClientConfig.MaxVersion = version
	// Whatever the server says of its authorities.
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return transport
}

// refusal is the status and the metric's word of a refused request.
func (g *guarded) refusal(stream *testkit.Stream, status int, word string) {
	g.t.Helper()
	body := stream.Rest()
	if stream.Status != status || stream.Header.Get("WWW-Authenticate") == "" {
		g.t.Errorf("%s: %d %v %s", word, stream.Status, stream.Header, body)
	}
	if g.Metric(fmt.Sprintf(`downlink_auth_failures_total{reason=%q}`, word)) == 0 {
		g.t.Errorf("%s isn't counted: %s", word, body)
	}
}

func (g *guarded) publish(device, text string) {
	g.t.Helper()
	body := fmt.Sprintf(`{"device":%q,"type":"t","text":%q}`, device, text)
	if status, answer := testkit.Post(g.t, g.Backend+"/v1/events", "application/json", body); status != 200 {
		g.t.Fatal(status, answer)
	}
}

// TestClientCertificates over both versions of TLS and of HTTP: the certificate
// says who a device is and in which groups, bad ones are told what is wrong,
// and health needs none.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	c := startCertified(t)
	inTills := func(cert *x509.Certificate) { cert.Subject.OrganizationalUnit = []string{"tills"} }
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, http2 := range []bool{false, true} {
			stream := c.open(c.as(c.ca.Issue("pos-1", inTills), http2, version), "/events?device=pos-2")
			stream.Until(": downlink")
			for _, target := range []string{"pos-2", "pos-1", "@tills"} {
				c.publish(target, "for "+target)
			}
			if got := stream.Until("data: for @tills"); strings.Contains(got, "pos-2") || !strings.Contains(got, "data: for pos-1") {
				t.Errorf("TLS %x, HTTP/2 %v: %s", version, http2, got)
			}
			stream.Close()
			c.refusal(c.open(c.transport(http2), "/events"), 401, "certificate_missing")
			c.refusal(c.open(c.as(testkit.NewAuthority(t, "pos authority").Issue("pos-1", nil), http2, version), "/events"), 401, "certificate_untrusted")
			c.refusal(c.open(c.as(c.ca.Issue("*", nil), http2, version), "/events"), 401, "certificate_device")
			if health := c.open(c.transport(http2), "/readyz"); health.Status != 200 {
				t.Errorf("health without a certificate: %d", health.Status)
			}
		}
	}
	stream := c.briefly(func(leaf testkit.Leaf) *testkit.Stream { return c.open(c.as(leaf, false, 0), "/events") })
	stream.Until(": downlink")
	if last := stream.Rest(); !strings.Contains(last, "retry: ") {
		t.Errorf("the end of a stream whose certificate expires: %q", last)
	}
	testkit.Eventually(t, "the end is counted", func() bool { return c.Metric(`downlink_session_ends_total{reason="expired"}`) == 1 })
	c.ca.Issue("pos-listen", nil).Write(t, c.dir, "pos-listen")
	program.StartListener(t, c.file("events"), "--url", c.Device, "--ca-file", c.file("ca.pem"), "--cert-file", c.file("pos-listen.pem"), "--key-file", c.file("pos-listen-key.pem"), "--earliest")
	c.publish("pos-listen", "hello")
	testkit.Eventually(t, "the event is printed", func() bool {
		text, _ := os.ReadFile(c.file("events"))
		return strings.Contains(string(text), "\thello\n")
	})
	if out := c.curl("pos-curl"); !strings.HasPrefix(out, "HTTP/1.1 200") || !strings.Contains(out, "text/event-stream") {
		t.Errorf("curl: %s", out)
	}
}

// briefly opens a stream with a certificate that will soon expire: the sooner, the
// less busy the machine is.
func (c *certified) briefly(open func(testkit.Leaf) *testkit.Stream) *testkit.Stream {
	c.t.Helper()
	for life := 4 * time.Second; ; life *= 2 {
		leaf := c.ca.Issue("pos-1", expiring(life))
		if stream := open(leaf); stream.Status == 200 || time.Now().Before(leaf.Cert.NotAfter) {
			return stream
		}
	}
}

func expiring(life time.Duration) func(*x509.Certificate) {
	return func(cert *x509.Certificate) { cert.NotAfter = time.Now().Add(life) }
}

// curl asks for a stream's header with a certificate of the name.
func (c *certified) curl(name string) string {
	c.t.Helper()
	c.ca.Issue(name, nil).Write(c.t, c.dir, name)
	out, err := exec.CommandContext(c.t.Context(), "curl", "-sS", "--http1.1", "--head", "--max-time", "30", "--cacert", c.file("ca.pem"),
		"--cert", c.file(name+".pem"), "--key", c.file(name+"-key.pem"), c.Device+"/events").CombinedOutput()
	if err != nil {
		c.t.Fatalf("curl: %v\n%s", err, out)
	}
	return string(out)
}

// withdrawn counts ends. A device may see its stream's end before that is counted.
const withdrawn = `downlink_session_ends_total{reason="withdrawn"}`

// TestCertificateIsWithdrawn: who is revoked, or whose authority is removed, is
// disconnected and let in no more; nobody else notices.
func TestCertificateIsWithdrawn(t *testing.T) {
	t.Parallel()
	other := testkit.NewAuthority(t, "another authority")
	c := startTrusting(t, []*testkit.Authority{other})
	bad, good, foreign := c.ca.Issue("bad", nil), c.ca.Issue("good", nil), other.Issue("foreign", nil)
	open := func(leaf testkit.Leaf, http2 bool) *testkit.Stream { return c.open(c.as(leaf, http2, 0), "/events") }
	stays := open(good, false)
	stays.Until(": downlink")
	for _, step := range []struct {
		leaf    testkit.Leaf
		change  func()
		refusal string
	}{
		{bad, func() { testkit.Put(t, c.file("crl.pem"), append(c.ca.Revoke(nil, bad.Cert), other.Revoke(nil)...)) }, "certificate_revoked"},
		{foreign, func() { testkit.WriteCertificates(t, c.file("devices-ca.pem"), c.ca.Cert) }, "certificate_untrusted"},
	} {
		plain, http2 := open(step.leaf, false), open(step.leaf, true)
		plain.Until(": downlink")
		http2.Until(": downlink")
		step.change()
		for _, stream := range []*testkit.Stream{plain, http2} {
			if last := stream.Rest(); !strings.Contains(last, "retry: ") {
				t.Errorf("%s: the end of the stream: %q", step.refusal, last)
			}
		}
		c.refusal(open(step.leaf, false), 401, step.refusal)
	}
	testkit.Eventually(t, "four sessions have ended as withdrawn", func() bool { return c.Metric(withdrawn) == 4 })
	c.publish("good", "still here")
	stays.Until("data: still here")
	// A list that is gone leaves open what nobody knows.
	testkit.Put(t, c.file("crl.pem"), other.Revoke(nil))
	testkit.Eventually(t, "nobody knows who is revoked", func() bool {
		return open(good, false).Header.Get("Downlink-Refused") == "revocation_unknown"
	})
	c.publish("good", "here all the same")
	stays.Until("data: here all the same")
}

// TestResumedSessions with a real client that keeps its session: what it proves
// is judged at each connection, although it shows no certificate again.
func TestResumedSessions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			second := testkit.NewAuthority(t, "another authority")
			c := startTrusting(t, []*testkit.Authority{second})
			revoked, removed := c.ca.Issue("revoked", nil), second.Issue("removed", nil)
			twice := func(leaf testkit.Leaf) (first, again string) {
				name := leaf.Cert.Subject.CommonName
				leaf.Write(t, c.dir, name)
				first = c.openssl(version, "-cert", c.file(name+".pem"), "-key", c.file(name+"-key.pem"), "-sess_out", c.file(name+".session"))
				return first, c.openssl(version, "-sess_in", c.file(name+".session"))
			}
			well := func(first, again string) bool {
				return strings.Contains(first, "HTTP/1.1 200") && strings.Contains(again, "HTTP/1.1 200") && strings.Contains(again, "\nReused, ")
			}
			for _, leaf := range []testkit.Leaf{revoked, removed} {
				if first, again := twice(leaf); !well(first, again) {
					t.Fatalf("%s: the first: %s\nagain: %s", leaf.Cert.Subject.CommonName, first, again)
				}
			}
			for life := 8 * time.Second; ; life *= 2 { // two handshakes; a busy machine needs longer
				brief := c.ca.Issue("brief", expiring(life))
				first, again := twice(brief)
				if well(first, again) {
					break
				}
				if time.Now().Before(brief.Cert.NotAfter) {
					t.Fatalf("brief: the first: %s\nagain: %s", first, again)
				}
			}
			testkit.Put(t, c.file("crl.pem"), append(c.ca.Revoke(nil, revoked.Cert), second.Revoke(nil)...))
			testkit.WriteCertificates(t, c.file("devices-ca.pem"), c.ca.Cert)
			for name, want := range map[string]string{"revoked": "revoked by its issuer", "removed": "not from an authority", "brief": "HTTP/1.1 401"} {
				var out string
				testkit.Eventually(t, name+" is refused", func() bool {
					out = c.openssl(version, "-sess_in", c.file(name+".session"))
					return !strings.Contains(out, "HTTP/1.1 200")
				})
				if !strings.Contains(out, want) || name != "brief" && !strings.Contains(out, "\nReused, ") {
					t.Errorf("%s: %s", name, out)
				}
			}
		})
	}
}

// openssl connects by openssl s_client and asks for a stream's header; it
// returns all that is said.
func (c *certified) openssl(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	at := strings.TrimPrefix(c.Device, "https://")
	cmd := exec.CommandContext(ctx, "openssl", append([]string{"s_client", "-connect", at, "-servername", "localhost", "-CAfile", c.file("ca.pem"), "-ign_eof"}, args...)...)
	// A HEAD tells the answer's header and the reason in it, and ends.
	cmd.Stdin = strings.NewReader("HEAD /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		c.t.Fatalf("openssl: %v\n%s", err, out.String())
	}
	return out.String()
}

// TestHTTP1Only: HTTP/2 isn't offered, with client certificates and without.
func TestHTTP1Only(t *testing.T) {
	t.Parallel()
	spoken := func(g *guarded) string {
		t.Helper()
		config := g.transport(true).TLSClientConfig.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		conn, err := tls.Dial("tcp", strings.TrimPrefix(g.Device, "https://"), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().NegotiatedProtocol
	}
	for _, g := range []*guarded{startGuarded(t, "--tls-http1-only"), startCertified(t, "--tls-http1-only").guarded} {
		if got := spoken(g); got != "http/1.1" {
			t.Errorf("spoken is %q", got)
		}
	}
	if got := spoken(startCertified(t).guarded); got != "h2" {
		t.Errorf("spoken is %q", got)
	}
}

// TestStaticTokens as an operator makes and withdraws them.
func TestStaticTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	make1 := func(device string) (token, line string) {
		t.Helper()
		r := program.Run(t, "", "token", "hash", "--device", device, "--groups", "tills")
		token, line, ok := strings.Cut(strings.TrimSpace(r.Out), "\n")
		if r.Code != 0 || !ok {
			t.Fatalf("%d %s%s", r.Code, r.Out, r.Err)
		}
		return token, line
	}
	tokenA, lineA := make1("a")
	tokenB, lineB := make1("b")
	testkit.Put(t, file, []byte(lineA+"\n"+lineB+"\n"))
	g := startIn(t, dir, "--auth", "tokens,jwt", "--device-tokens-file", file)
	transport := g.transport(false)
	open := func(token string) *testkit.Stream { return g.open(transport, "/events", bearer(token)) }
	a, b := open(tokenA), open(tokenB)
	a.Until(": downlink")
	b.Until(": downlink")
	byJWT := open(testkit.HS256(deviceSecret, "c", time.Hour, ""))
	byJWT.Until(": downlink")
	g.publish("@tills", "for both")
	a.Until("data: for both")
	b.Until("data: for both")
	testkit.Put(t, file, []byte(lineB+"\n"))
	if last := a.Rest(); !strings.Contains(last, "retry: ") {
		t.Errorf("the end of the stream: %q", last)
	}
	g.refusal(open(tokenA), 401, "token_unknown")
	testkit.Eventually(t, "one session has ended as withdrawn", func() bool { return g.Metric(withdrawn) == 1 })
	g.publish("b", "still here")
	b.Until("data: still here")
	g.publish("c", "here too")
	byJWT.Until("data: here too")
	g.Terminate()
	for _, secret := range []string{tokenA, tokenB, tokenA[3:20]} {
		if strings.Contains(g.Log(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// TestProxyInFront: its word counts, nobody else's does, on both ways through
// the gateway.
func TestProxyInFront(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(trusted, driver string) *guarded {
		return &guarded{t: t, dir: dir, Gateway: program.StartGateway(t, "--log", "file:"+t.TempDir(), "--auth", "proxy", "--driver", driver,
			"--proxy-device-header", "X-Device", "--proxy-groups-header", "X-Groups", "--trusted-proxies", trusted)}
	}
	for _, driver := range []string{"light", "ordinary"} {
		trusting, wary := start("192.0.2.1, 127.0.0.0/8", driver), start("192.0.2.0/24", driver)
		transport := &http.Transport{}
		stream := trusting.open(transport, "/events", "X-Device: pos-1", "X-Groups: tills, store-1")
		stream.Until(": downlink")
		trusting.publish("@store-1", "for the store")
		stream.Until("data: for the store")
		trusting.refusal(trusting.open(transport, "/events?device=pos-1"), 401, "proxy_header_missing")
		trusting.refusal(trusting.open(transport, "/events", "X-Device: a, b"), 400, "proxy_ambiguous")
		wary.refusal(wary.open(transport, "/events", "X-Device: pos-1"), 401, "proxy_untrusted")
		// Twice, as only a raw connection says it.
		conn, err := net.Dial("tcp", strings.TrimPrefix(trusting.Device, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: x\r\nX-Device: a\r\nx-device: a\r\n\r\n")
		if line, _ := testkit.RawStream(t, conn).Line(); !strings.HasPrefix(line, "HTTP/1.1 400") {
			t.Errorf("the header twice: %s", line)
		}
	}
}

// TestIssuersThatMisbehave: whatever one does, his keys count on, the other's
// tokens are as fast as ever, made-up keys cost a fetch in 10 s, and a key that
// was replaced under its kid is noticed.
func TestIssuersThatMisbehave(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	a, b := testkit.NewIssuer(t, "one"), testkit.NewIssuer(t, "one")
	const issA, issB = `,"iss":"https://a.example"`, `,"iss":"https://b.example"`
	g := &guarded{t: t, Gateway: program.StartGateway(t, "--log", "file:"+t.TempDir(), "--auth", "jwt", "--jwt-jwks-refresh", "1s",
		"--jwt-jwks-url", "https://a.example "+a.URL, "--jwt-jwks-url", "https://b.example "+b.URL)}
	transport := &http.Transport{}
	head := func(token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, g.Device+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	t.Cleanup(transport.CloseIdleConnections)
	both := func(when string) {
		t.Helper()
		// A fetch that isn't answered takes five seconds. What waits for one does so
		// each time; a busy machine doesn't.
		for try := 1; ; try++ {
			began := time.Now()
			if got := head(a.Token("one", "x", time.Hour, issA)); got != 200 {
				t.Errorf("%s, A: %d", when, got)
			}
			if got := head(b.Token("one", "x", time.Hour, issB)); got != 200 {
				t.Errorf("%s, B: %d", when, got)
			}
			if crossed := head(a.Token("one", "x", time.Hour, issB)); crossed != 401 {
				t.Errorf("%s, B by A's key: %d", when, crossed)
			}
			took := time.Since(began)
			if took <= 3*time.Second {
				return
			}
			if try == 5 {
				t.Errorf("%s: it took %v", when, took)
				return
			}
		}
	}
	testkit.Eventually(t, "both sets are fetched", func() bool {
		return g.Metric(`downlink_jwks_keys{for="devices",issuer="https://a.example"}`) == 1 && g.Metric(`downlink_jwks_keys{for="devices",issuer="https://b.example"}`) == 1
	})
	both("at first")
	for _, manner := range []string{testkit.Fails, testkit.Garbage, testkit.Empty, testkit.Huge, testkit.Redirect, testkit.Cuts, testkit.Drips, testkit.Hangs} {
		a.Be(manner)
		before := a.Fetches()
		testkit.Eventually(t, "A is asked while it "+manner, func() bool { return a.Fetches() > before })
		both("while A " + manner)
	}
	a.Be(testkit.Good)
	fetched := a.Fetches()
	began := time.Now()
	for n := range 1000 {
		token := testkit.EdDSA(make([]byte, 64), fmt.Sprint(n), "x", time.Hour)
		if got := head(token); got != 401 {
			t.Fatalf("a made-up key: %d", got)
		}
	}
	// It fetches once in a second anyway.
	if n, most := a.Fetches()-fetched, int(time.Since(began)/(900*time.Millisecond))+3; n > most {
		t.Errorf("%d fetches for made-up keys in %v", n, time.Since(began))
	}
	old := a.Token("one", "x", time.Hour, issA)
	a.Replace("one")
	testkit.Eventually(t, "the replaced key is noticed", func() bool { return head(old) == 401 })
	both("after the change of keys")
}

// TestTokenCommands: what is made is accepted, and why not otherwise.
func TestTokenCommands(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	secret := program.Run(t, "", "token", "secret")
	put(t, file("secret"), secret.Out)
	token := program.Run(t, "", "token", "make", "--device", "pos-1", "--groups", "a,b", "--hmac-secret-file", file("secret")).Out
	key, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384").Output()
	if err != nil {
		t.Fatal(err)
	}
	put(t, file("key.pem"), string(key))
	if out, err := exec.CommandContext(t.Context(), "openssl", "pkey", "-in", file("key.pem"), "-pubout", "-out", file("public.pem")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	byKey := program.Run(t, "", "token", "make", "--device", "pos-2", "--expires", "5m", "--key-file", file("key.pem"), "--kid", "one", "--issuer", "me").Out
	static, line, _ := strings.Cut(program.Run(t, "", "token", "hash", "--device", "pos-3", "--expires", "24h").Out, "\n")
	put(t, file("tokens"), line)
	settings := "--auth jwt,tokens --jwt-hmac-secret-file " + file("secret") + " --jwt-public-keys-file " + file("public.pem") + " --device-tokens-file " + file("tokens")
	inspect := "token inspect "
	for _, c := range []struct {
		in, args string
		code     int
		says     string
	}{
		{token, inspect + settings, 0, "accepted until"},
		{token, inspect + settings, 0, "pos-1"},
		{byKey, inspect + settings + " -", 0, "pos-2"},
		{byKey, inspect, 0, `"kid": "one"`},
		{byKey, inspect, 0, "not judged"},
		{static, inspect + settings, 0, "pos-3"},
		{static, inspect, 0, "sha256"},
		{token, inspect + settings + " --jwt-issuer me", 3, "token_issuer"},
		{byKey, inspect + settings + " --jwt-issuer me", 0, "pos-2"},
		{static + "x", inspect + settings, 3, "token_unknown"},
		{token + "x y", inspect + settings, 2, "one token"},
		{"", inspect + settings, 2, "one token"},
		{token, inspect + "--auth jwt", 2, "jwt_hmac_secret_file"},
		{static, "token hash --device pos-9 -", 0, `"device":"pos-9"`},
		{"short", "token hash --device pos-9 -", 2, "32"},
		{"", "token hash --device pos-9 " + static, 2, "standard input"},
		{"", "token hash --device @x", 2, "device ID"},
		{"", "token make --device x", 2, "--key-file"},
		{"", "token make --device x --key-file " + file("public.pem"), 2, "PUBLIC KEY"},
		{"", "token make --device x --key-file " + file("none"), 2, "no such file"},
		{"", "token make --device x --hmac-secret-file " + file("secret") + " --expires=-1h", 2, "--expires"},
		{"", "token make --device * --hmac-secret-file " + file("secret"), 2, "device"},
		{"", inspect + "x " + static, 2, "***"},
	} {
		r := program.Run(t, c.in, strings.Fields(c.args)...)
		if r.Code != c.code || !strings.Contains(r.Out+r.Err, c.says) {
			t.Errorf("%s: %d %s%s, want %d %q", c.args, r.Code, r.Out, r.Err, c.code, c.says)
		}
		for _, hidden := range []string{strings.TrimSpace(secret.Out), static, strings.TrimSpace(token)} {
			if strings.Contains(r.Err, hidden) {
				t.Errorf("%s: the error holds what is secret", c.args)
			}
		}
	}
	if _, err := os.Stat(file("tokens")); err != nil {
		t.Error(err)
	}
}
