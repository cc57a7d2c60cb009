package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/testkit"
)

const deviceSecret = "a secret of more than thirty-two bytes"

// guarded is a gateway that checks tokens, and its files.
type guarded struct {
	*testkit.Gateway
	t   *testing.T
	dir string
}

// startGuarded starts one that speaks TLS.
func startGuarded(t *testing.T, args ...string) *guarded {
	t.Helper()
	dir := t.TempDir()
	return startIn(t, dir, append([]string{"--tls-cert-file", filepath.Join(dir, "server.pem"), "--tls-key-file", filepath.Join(dir, "server-key.pem")}, args...)...)
}

func startIn(t *testing.T, dir string, args ...string) *guarded {
	t.Helper()
	testkit.Certificates(t, dir)
	put(t, filepath.Join(dir, "secret"), deviceSecret+"\n")
	return &guarded{t: t, dir: dir, Gateway: program.StartGateway(t, append([]string{
		"--log", "file:" + filepath.Join(dir, "log"), "--auth", "jwt", "--jwt-hmac-secret-file", filepath.Join(dir, "secret"), "--jwt-leeway", "0s",
	}, args...)...)}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// transport trusts the authority whose certificate is in the directory now.
func (g *guarded) transport(http2 bool) *http.Transport {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, "ca.pem"))
	if err != nil {
		g.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
}

// open asks for a stream at a path, with header lines.
func (g *guarded) open(transport *http.Transport, path string, header ...string) *testkit.Stream {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.Device+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	return testkit.Send(g.t, transport, req)
}

func bearer(token string) string { return "Authorization: Bearer " + token }

// TestTokenOverTLS: the token says who a device is, and ?device= nothing; both
// versions of HTTP; groups; and the stream ends when the token expires.
func TestTokenOverTLS(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	if !strings.HasPrefix(g.Device, "https://") {
		t.Fatalf("the devices' URL is %s", g.Device)
	}
	for _, http2 := range []bool{false, true} {
		token := testkit.HS256(deviceSecret, "pos-1", time.Hour, `,"groups":["tills"]`)
		stream := g.open(g.transport(http2), "/events?device=pos-2&group=else", bearer(token))
		stream.Until(": downlink")
		for _, target := range []string{"pos-2", "@else", "pos-1", "@tills"} {
			body := fmt.Sprintf(`{"device":%q,"type":"t","text":"for %s"}`, target, target)
			if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", body); status != 200 {
				t.Fatal(status, answer)
			}
		}
		if got := stream.Until("data: for @tills"); strings.Contains(got, "pos-2") || strings.Contains(got, "else") || !strings.Contains(got, "data: for pos-1") {
			t.Errorf("HTTP/2 %v: %s", http2, got)
		}
		stream.Close()
	}
	expires(t, g)
	testkit.Eventually(t, "the end is counted", func() bool {
		_, metrics := testkit.Get(t, g.Backend+"/metrics")
		return strings.Contains(metrics, `downlink_session_ends_total{reason="expired"} 1`)
	})
}

// expires opens a stream with a token that expires soon, and sees its end.
func expires(t *testing.T, g *guarded) {
	t.Helper()
	var stream *testkit.Stream
	var until time.Time
	for life := 2 * time.Second; stream == nil || stream.Status == http.StatusUnauthorized; life *= 2 {
		if life > time.Minute {
			t.Fatalf("a token of half a minute: %d", stream.Status)
		}
		until = time.Now().Add(life).Truncate(time.Second)
		stream = g.open(g.transport(false), "/events", bearer(testkit.HS256(deviceSecret, "pos-1", time.Until(until)+time.Millisecond, "")))
	}
	stream.Until(": downlink")
	if last := stream.Rest(); !strings.Contains(last, "retry: ") {
		t.Errorf("the end of an expired stream: %q", last)
	}
	// 5 s of spread; the rest is for a machine that is busy with other tests.
	if late := time.Since(until); late < 0 || late > 30*time.Second {
		t.Errorf("it ended %v after the token had expired", late)
	}
}

// TestRefusedTokens: the reason stands in the answer and in a metric, over TLS
// and in the clear, which is another way through the gateway.
func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	t.Run("TLS", func(t *testing.T) { refusedTokens(t, startGuarded(t)) })
	t.Run("plain", func(t *testing.T) { refusedTokens(t, startIn(t, t.TempDir())) })
}

func refusedTokens(t *testing.T, g *guarded) {
	transport := g.transport(false)
	good := testkit.HS256(deviceSecret, "pos-1", time.Hour, "")
	for _, c := range []struct {
		reason, path, header string
		status               int
	}{
		{"token_missing", "/events?device=pos-1", "X: y", 401},
		{"token_malformed", "/events", bearer("x"), 401},
		{"token_expired", "/events", bearer(testkit.HS256(deviceSecret, "pos-1", -time.Minute, "")), 401},
		{"token_signature", "/events", bearer(testkit.HS256(deviceSecret+"!", "pos-1", time.Hour, "")), 401},
		{"token_device", "/events", bearer(testkit.HS256(deviceSecret, "*", time.Hour, "")), 401},
		{"token_ambiguous", "/events?access_token=" + good + "&access_token=" + good, "X: y", 400},
		{"", "/events?device=pos-2", bearer(good), 200},
		{"", "/events?access_token=" + good, "X: y", 200},
		{"", "/events", "Cookie: downlink_token=" + good, 200},
	} {
		stream := g.open(transport, c.path, c.header)
		challenge := stream.Header.Get("WWW-Authenticate")
		if stream.Status != c.status || (c.reason != "") != strings.HasPrefix(challenge, `Bearer realm="downlink"`) {
			t.Errorf("%s: %d, %q", c.reason, stream.Status, challenge)
		}
		stream.Close()
		_, metrics := testkit.Get(t, g.Backend+"/metrics")
		if c.reason != "" && !strings.Contains(metrics, fmt.Sprintf("downlink_auth_failures_total{reason=%q} 1\n", c.reason)) {
			t.Errorf("%s isn't counted", c.reason)
		}
	}
}

// TestTokensLeaveNoTrace sends tokens in every place and form, and looks for
// them in everything that the gateway says, while streams are open and after.
func TestTokensLeaveNoTrace(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	args := []string{"--log-level", "debug", "--jwt-issuer", "me", "--auth", "tokens", "--device-tokens-file", staticTokens(t, staticToken)}
	t.Run("TLS", func(t *testing.T) { noTrace(t, startGuarded(t, args...)) })
	t.Run("plain", func(t *testing.T) { noTrace(t, startIn(t, t.TempDir(), args...)) })
}

// staticToken is one that noTrace looks for.
const staticToken = "dl_M4RK3R_0123456789abcdef0123456789"

// staticTokens is the path of a file in which the token is that of pos-2.
func staticTokens(t *testing.T, token string) string {
	t.Helper()
	line := program.Run(t, token, "token", "hash", "--device", "pos-2", "-")
	if line.Code != 0 {
		t.Fatal(line.Err)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	put(t, path, line.Out)
	return path
}

func noTrace(t *testing.T, g *guarded) {
	const marker = "M4RK3R"
	good := testkit.HS256(deviceSecret, "pos-1", time.Hour, `,"iss":"me","jti":"`+marker+`"`)
	tokens := []string{
		good, good + marker, marker, "a.b." + marker,
		testkit.HS256(deviceSecret, "pos-1", -time.Hour, `,"iss":"me","jti":"`+marker+`"`),
		testkit.HS256(deviceSecret, "pos-1", time.Hour, `,"iss":"`+marker+`"`),
		testkit.HS256(deviceSecret, "@"+marker, time.Hour, `,"iss":"me"`),
		testkit.HS256(marker+deviceSecret, "pos-1", time.Hour, ""),
		staticToken, staticToken + "x",
	}
	secrets := []string{marker, deviceSecret}
	var said strings.Builder
	for _, token := range tokens {
		if parts := strings.Split(token, "."); len(parts) == 3 && len(parts[2]) > 20 {
			secrets = append(secrets, parts[1], parts[2])
		}
		for _, http2 := range []bool{false, true} {
			for _, place := range [][]string{
				{"/events", bearer(token)},
				{"/events?access_token=" + token},
				{"/events?access_token=" + token + "&access_token=" + token},
				{"/events?from=" + token},
				{"/events", "Cookie: downlink_token=" + token},
				{"/events", "Cookie: downlink_token=" + token + "; downlink_token=" + token},
				{"/nothing?access_token=" + token, bearer(token)},
				{"/healthz?access_token=" + token, bearer(token)},
			} {
				stream := g.open(g.transport(http2), place[0], place[1:]...)
				fmt.Fprintln(&said, stream.Status, stream.Header)
				if stream.Status != 200 || stream.Header.Get("Content-Type") != "text/event-stream" {
					said.WriteString(stream.Rest())
				} else if len(place) == 1 && http2 {
					stream.Until(": downlink") // it stays open
				} else {
					stream.Close()
				}
			}
		}
	}
	for _, path := range []string{
		"/metrics", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine", "/debug/pprof/heap?debug=1",
		"/debug/pprof/allocs", "/debug/pprof/mutex?debug=1", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1", "/debug/pprof/cmdline",
		"/readyz", "/healthz", "/v1/openapi.yaml", "/v1/devices/pos-1", "/v1/devices/pos-2", "/v1/limits", "/v1/revoked", "/nothing?access_token=" + good,
	} {
		_, body := testkit.Get(t, g.Backend+path)
		said.WriteString(body)
	}
	g.Terminate()
	said.WriteString(g.Log())
	for _, secret := range secrets {
		if at := strings.Index(said.String(), secret); at >= 0 {
			text := said.String()
			t.Errorf("%q is told: …%s…", secret, text[max(0, at-200):min(len(text), at+100)])
		}
	}
	if !strings.Contains(said.String(), "session ended") {
		t.Error("the log was not looked at")
	}
}

// TestFilesAreExchanged under a running gateway: new handshakes get the new
// certificate, new tokens need the new secret, and who is connected stays.
func TestFilesAreExchanged(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	before := g.transport(false)
	stream := g.open(before, "/events", bearer(testkit.HS256(deviceSecret, "pos-1", time.Hour, "")))
	stream.Until(": downlink")
	put(t, filepath.Join(g.dir, "server-key.pem"), "rubbish")
	put(t, filepath.Join(g.dir, "secret"), "short")
	testkit.Eventually(t, "both are complained about", func() bool {
		return strings.Contains(g.Log(), "source=tls") && strings.Contains(g.Log(), "source=jwt")
	})
	g.open(g.transport(false), "/events", bearer(testkit.HS256(deviceSecret, "pos-1", time.Hour, ""))).Until(": downlink")
	testkit.Certificates(t, g.dir)
	put(t, filepath.Join(g.dir, "secret"), "another "+deviceSecret)
	testkit.Eventually(t, "both are taken over", func() bool {
		_, metrics := testkit.Get(t, g.Backend+"/metrics")
		return strings.Contains(metrics, `downlink_file_reloads_total{result="done",source="jwt"} 1`) && strings.Contains(metrics, `downlink_file_reloads_total{result="done",source="tls"} 1`)
	})
	g.open(g.transport(true), "/events", bearer(testkit.HS256("another "+deviceSecret, "pos-1", time.Hour, ""))).Until(": downlink")
	if old := g.open(g.transport(true), "/events", bearer(testkit.HS256(deviceSecret, "pos-1", time.Hour, ""))); old.Status != 401 {
		t.Errorf("a token by the old secret: %d", old.Status)
	}
	if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"pos-1","type":"t","text":"still here"}`); status != 200 {
		t.Fatal(status, answer)
	}
	stream.Until("data: still here")
	if strings.Contains(g.Log(), "thirty-two") {
		t.Error("the secret stands in the log")
	}
}

// TestKeySetThatIsAwayAtFirst: the gateway runs and isn't ready, devices are
// told to come back; then all is well.
func TestKeySetThatIsAwayAtFirst(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var here atomic.Bool
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !here.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, testkit.KeySet(key, "one"))
	}))
	t.Cleanup(issuer.Close)
	g := program.LaunchGateway(t, "--log", "file:"+t.TempDir(), "--auth", "jwt", "--jwt-jwks-url", issuer.URL+"/keys", "--retry", "100ms")
	g.AwaitStarted()
	token := testkit.EdDSA(key, "one", "pos-1", time.Hour)
	testkit.Eventually(t, "the reason is known", func() bool {
		_, why := testkit.Get(t, g.Backend+"/readyz")
		return strings.Contains(why, "keys")
	})
	refused := testkit.Open(t, g.Device+"/events?access_token="+token, "")
	if refused.Status != 200 || refused.Header.Get("Downlink-Refused") != "keys_unavailable" || !strings.Contains(refused.Rest(), "retry: ") {
		t.Errorf("%d %v", refused.Status, refused.Header)
	}
	here.Store(true)
	g.AwaitReady()
	testkit.Open(t, g.Device+"/events?access_token="+token, "").Until(": downlink")
	if status, body := testkit.Get(t, g.Device+"/events?access_token="+testkit.EdDSA(key, "two", "pos-1", time.Hour)); status != 401 || !strings.Contains(body, "kid") {
		t.Errorf("a key that doesn't exist: %d %s", status, body)
	}
}

// TestListenWithToken over TLS, and what check says of the files.
func TestListenWithToken(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	g := startGuarded(t)
	file := func(name string) string { return filepath.Join(g.dir, name) }
	put(t, file("token"), testkit.HS256(deviceSecret, "pos-1", time.Hour, "")+"\n")
	put(t, file("bad"), "a.b.c")
	program.StartListener(t, file("events"), "--url", g.Device, "--token-file", file("token"), "--ca-file", file("ca.pem"), "--earliest")
	if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"pos-1","type":"t","text":"hello"}`); status != 200 {
		t.Fatal(status, answer)
	}
	testkit.Eventually(t, "the event is printed", func() bool {
		text, _ := os.ReadFile(file("events"))
		return strings.Contains(string(text), "\tt\thello\n")
	})
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"listen --url " + g.Device + " --token-file " + file("bad") + " --ca-file " + file("ca.pem"), 3, "token"},
		{"listen --url " + g.Device + " --token-file " + file("none"), 2, "none"},
		{"listen --url " + g.Device + " --token-file " + file("token") + " --ca-file " + file("token"), 2, "no certificate"},
		{"listen --url " + g.Device, 2, "--token-file"},
		{"listen --device a --token-file " + file("token"), 2, "--device"},
		{"check --listen 127.0.0.1:0 --tls-cert-file " + file("server.pem") + " --tls-key-file " + file("server-key.pem"), 0, "tls_cert_file"},
		{"check --listen 127.0.0.1:0 --tls-cert-file " + file("ca.pem") + " --tls-key-file " + file("server-key.pem"), 2, "ca.pem"},
		{"serve --listen 127.0.0.1:0 --tls-cert-file " + file("ca.pem") + " --tls-key-file " + file("server-key.pem"), 2, "ca.pem"},
		{"check --auth jwt --jwt-hmac-secret-file " + file("bad"), 2, "at least 32"},
	} {
		if r := program.Run(t, "", strings.Fields(c.args)...); r.Code != c.code || !strings.Contains(r.Out+r.Err, c.says) {
			t.Errorf("%s: %d %s%s", c.args, r.Code, r.Out, r.Err)
		}
	}
}
