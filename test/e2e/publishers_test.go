package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

const (
	erpToken = "erp-0123456789abcdef0123456789abcdef"
	opsToken = "ops-0123456789abcdef0123456789abcdef"
	webToken = "web-0123456789abcdef0123456789abcdef"
)

func sha(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

// publishersFile is one publisher for some devices, one for everything but
// tickets, and one for tickets of kiosks.
func publishersFile() string {
	return "- {name: erp, sha256: " + sha(erpToken) + `, devices: ["pos-*"], groups: [north]}
- {name: ops, sha256: ` + sha(opsToken) + `, devices: ["*"], groups: ["*"], broadcast: true, admin: true}
- {name: web, sha256: ` + sha(webToken) + `, devices: ["kiosk-*"], groups: [lobby], tickets: true}
`
}

// An answer to a request that isn't a stream.
type reply struct {
	status int
	header http.Header
	body   string
}

// call asks once, over a connection of its own, with header lines.
func call(t *testing.T, transport *http.Transport, method, url, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true}
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

const asJSON = "Content-Type: application/json"

// TestPublishers: nobody publishes more than the token allows, by any way
// through the gateway, and what is open and what isn't is as documented.
func TestPublishers(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("publishers.yml"), publishersFile())
	put(t, at("secret"), deviceSecret+"\n")
	g := program.StartGateway(t, "--log", "file:"+at("log"),
		"--auth", "jwt", "--jwt-hmac-secret-file", at("secret"), "--jwt-audience", "devices",
		"--backend-auth", "tokens,jwt", "--publishers-file", at("publishers.yml"),
		"--backend-jwt-hmac-secret-file", at("secret"), "--backend-jwt-audience", "publishers")
	jwt := func(further string) string { return testkit.HS256(deviceSecret, "crm", time.Hour, further) }
	const scopes = `,"downlink":{"devices":["pos-*"],"broadcast":true}`
	event := func(target string) string { return fmt.Sprintf(`{"device":%q,"type":"t","text":"x"}`, target) }
	stream := testkit.Open(t, g.Device+"/events?access_token="+testkit.HS256(deviceSecret, "pos-1", time.Hour, `,"aud":"devices"`), "")
	stream.Until(": downlink")
	for _, c := range []struct {
		what, token, body string
		status            int
		says              string
	}{
		{"own device", erpToken, event("pos-1"), 200, `"id"`},
		{"own group", erpToken, event("@north"), 200, `"ids"`},
		{"other device", erpToken, event("kiosk-1"), 403, "devices"},
		{"other group", erpToken, event("@south"), 403, "groups"},
		{"everybody", erpToken, event("*"), 403, "broadcast"},
		{"one of a list", erpToken, `{"devices":["pos-1","kiosk-1"],"type":"t","text":"x"}`, 403, "kiosk-1"},
		{"all of it", opsToken, event("*"), 200, `"ids"`},
		{"no token", "", event("pos-1"), 401, "unauthorized"},
		{"unknown token", erpToken + "x", event("pos-1"), 401, "unauthorized"},
		{"JWT", jwt(`,"aud":"publishers"` + scopes), event("pos-1"), 200, `"id"`},
		{"JWT, other device", jwt(`,"aud":"publishers"` + scopes), event("kiosk-1"), 403, "devices"},
		{"JWT, other audience", jwt(`,"aud":"devices"` + scopes), event("pos-1"), 401, "aud"},
		{"JWT, no scopes", jwt(`,"aud":"publishers"`), event("pos-1"), 403, "scopes"},
		{"a device's JWT", testkit.HS256(deviceSecret, "pos-1", time.Hour, `,"aud":"devices"`), event("pos-1"), 401, "aud"},
		{"JWT, expired", testkit.HS256(deviceSecret, "crm", -time.Hour, `,"aud":"publishers"`+scopes), event("pos-1"), 401, "expired"},
	} {
		for name, further := range map[string][]string{"brief": nil, "net/http": {"Pragma: no-cache"}} {
			header := append([]string{asJSON}, further...)
			if c.token != "" {
				header = append(header, bearer(c.token))
			}
			r := call(t, nil, "POST", g.Backend+"/v1/events", c.body, header...)
			if r.status != c.status || !strings.Contains(r.body, c.says) || (c.status == 401) != (r.header.Get("WWW-Authenticate") != "") {
				t.Errorf("%s (%s): %d %s", c.what, name, r.status, r.body)
			}
		}
	}
	r := call(t, nil, "POST", g.Backend+"/v1/events", event("pos-1")+"\n"+event("kiosk-1")+"\n"+event("pos-2")+"\n", "Content-Type: application/x-ndjson", bearer(erpToken))
	if lines := strings.Split(r.body, "\n"); r.status != 200 || len(lines) != 4 || !strings.Contains(lines[1], "forbidden") || !strings.Contains(lines[0]+lines[2], `"id"`) {
		t.Errorf("NDJSON: %d %s", r.status, r.body)
	}
	if r := call(t, nil, "GET", g.Device+"/events", "", bearer(jwt(`,"aud":"publishers"`+scopes))); r.status != 401 {
		t.Errorf("a publisher's token on the devices' port: %d", r.status)
	}
	openAndNot(t, g)
	if !strings.Contains(g.Log(), "by=ops") {
		t.Error("the log doesn't say who revoked a device")
	}

	put(t, at("publishers.yml"), "- name: broken")
	testkit.Eventually(t, "the file is complained about", func() bool { return strings.Contains(g.Log(), "source=publishers") })
	if r := call(t, nil, "POST", g.Backend+"/v1/events", event("pos-1"), asJSON, bearer(erpToken)); r.status != 200 {
		t.Errorf("after a broken file: %d", r.status)
	}
	put(t, at("publishers.yml"), strings.Replace(publishersFile(), sha(erpToken), sha("another-"+erpToken), 1))
	testkit.Eventually(t, "the old token counts no more", func() bool {
		return call(t, nil, "POST", g.Backend+"/v1/events", event("pos-1"), asJSON, bearer(erpToken)).status == 401
	})
	if r := call(t, nil, "POST", g.Backend+"/v1/events", event("pos-1"), asJSON, bearer("another-"+erpToken)); r.status != 200 {
		t.Errorf("the new token: %d %s", r.status, r.body)
	}
}

// openAndNot: health and metrics are for everybody, the rest isn't.
func openAndNot(t *testing.T, g *testkit.Gateway) {
	t.Helper()
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/v1/openapi.yaml"} {
		if r := call(t, nil, "GET", g.Backend+path, ""); r.status != 200 {
			t.Errorf("%s without a token: %d", path, r.status)
		}
	}
	for _, c := range []string{
		"GET /debug/pprof/", "GET /debug/pprof/heap", "GET /debug/pprof/goroutine?debug=1", "GET /debug/pprof/trace?seconds=0.01",
		"GET /v1/limits", "PATCH /v1/limits", "GET /v1/revoked", "POST /v1/devices/pos-1/disconnect", "POST /v1/devices/pos-1/revoke", "DELETE /v1/devices/pos-1/revoke",
	} {
		method, path, _ := strings.Cut(c, " ")
		for token, status := range map[string]int{"": 401, erpToken: 403} {
			if r := call(t, nil, method, g.Backend+path, "{}", asJSON, bearer(token)); r.status != status {
				t.Errorf("%s with %q: %d %s", c, token, r.status, r.body)
			}
		}
		if r := call(t, nil, method, g.Backend+path, "{}", asJSON, bearer(opsToken)); r.status != 200 {
			t.Errorf("%s as admin: %d %s", c, r.status, r.body)
		}
	}
}

// TestBackendOverTLS, by the tools and their token.
func TestBackendOverTLS(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	testkit.Certificates(t, dir)
	put(t, at("publishers.yml"), publishersFile())
	put(t, at("token"), opsToken+"\n")
	put(t, at("bad"), "bad token\n")
	g := program.LaunchGateway(t, "--log", "file:"+at("log"), "--backend-auth", "tokens", "--publishers-file", at("publishers.yml"),
		"--backend-tls-cert-file", at("server.pem"), "--backend-tls-key-file", at("server-key.pem"))
	g.AwaitStarted()
	if !strings.HasPrefix(g.Backend, "https://") {
		t.Fatalf("the back end's URL is %s", g.Backend)
	}
	transport := (&guarded{t: t, dir: dir}).transport(true)
	testkit.Eventually(t, "it is ready", func() bool { return call(t, transport, "GET", g.Backend+"/readyz", "").status == 200 })
	stream := testkit.Open(t, g.Device+"/events?device=pos-1", "")
	stream.Until(": downlink")
	publish := "publish --backend " + g.Backend + " --ca-file " + at("ca.pem") + " --retries 0 --device pos-1 --type t "
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{publish + "--token-file " + at("token") + " hello", 0, `"id"`},
		{publish + "hello", 3, "proves no right"},
		{publish + "--token-file " + at("bad") + " hello", 2, "holds something that no token has"},
		{publish + "--token-file " + at("none") + " hello", 2, "--token-file"},
		{"limits --backend " + g.Backend + " --ca-file " + at("ca.pem") + " --token-file " + at("token"), 0, "max_connections"},
		{"publish --backend " + g.Backend + " --retries 0 --device pos-1 --type t hello", 1, "certificate"},
	} {
		if r := program.Run(t, "", strings.Fields(c.args)...); r.Code != c.code || !strings.Contains(r.Out+r.Err, c.says) || strings.Contains(r.Out+r.Err, opsToken) {
			t.Errorf("%s: %d %s%s", c.args, r.Code, r.Out, r.Err)
		}
	}
	stream.Until("data: hello")
}

// TestOpenBackendIsRefused: who starts a gateway that anybody could publish
// through has to say so.
func TestOpenBackendIsRefused(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	r := program.Run(t, "", "serve", "--listen", "127.0.0.1:0", "--backend-listen", "0.0.0.0:0", "--log", "file:"+t.TempDir())
	if r.Code != 2 || !strings.Contains(r.Err, "--insecure-open-backend") {
		t.Errorf("%d %s", r.Code, r.Err)
	}
}

// TestPublishersKeySet: publishers' tokens by an issuer that is away at first. A
// gateway serves devices meanwhile, tells publishers to come back, and tells who
// runs it why, in metrics and in its log.
func TestPublishersKeySet(t *testing.T) {
	t.Parallel()
	issuer := testkit.NewIssuer(t, "one")
	issuer.Be(testkit.Fails)
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--backend-auth", "jwt", "--backend-jwt-jwks-url", issuer.URL, "--backend-jwt-audience", "publishers", "--jwt-jwks-refresh", "1s")...)
	token := issuer.Token("one", "erp", time.Hour, `,"aud":"publishers","downlink":{"devices":["*"]}`)
	send := func(device string) reply {
		return call(t, nil, "POST", g.Backend+"/v1/events", fmt.Sprintf(`{"device":%q,"type":"t","text":"x"}`, device), asJSON, bearer(token))
	}
	if r := send("pos-1"); r.status != 503 || !strings.Contains(r.body, "keys-unavailable") || r.header.Get("Retry-After") == "" {
		t.Errorf("while the issuer is away: %d %s", r.status, r.body)
	}
	testkit.Open(t, g.Device+"/events?device=pos-1", "").Until(": downlink")
	testkit.Eventually(t, "a failed fetch is counted", func() bool {
		return g.Metric(`downlink_jwks_fetches_total{for="publishers",issuer="",result="failed"}`) > 0
	})
	issuer.Be(testkit.Good)
	testkit.Eventually(t, "the keys are there", func() bool { return send("pos-1").status == 200 })
	if keys, fetched := g.Metric(`downlink_jwks_keys{for="publishers",issuer=""}`), g.Metric(`downlink_jwks_fetched_timestamp_seconds{for="publishers",issuer=""}`); keys != 1 || time.Since(time.Unix(int64(fetched), 0)) > time.Hour {
		t.Errorf("%v keys, fetched at %v", keys, fetched)
	}
	for _, manner := range []string{testkit.Hangs, testkit.Garbage} {
		issuer.Be(manner)
		if r := send("pos-1"); r.status != 200 {
			t.Errorf("while it %s: %d %s", manner, r.status, r.body)
		}
	}
	for range 3 {
		if r := send("*"); r.status != 403 {
			t.Errorf("a broadcast: %d %s", r.status, r.body)
		}
	}
	if keys, scope := g.Metric(`downlink_backend_denied_total{reason="keys_unavailable"}`), g.Metric(`downlink_backend_denied_total{reason="scope_missing"}`); keys == 0 || scope != 3 {
		t.Errorf("counted: %v without keys, %v without the scope", keys, scope)
	}
	g.Terminate()
	log := g.Log()
	for what, n := range map[string]int{"reason=keys_unavailable": 1, "reason=scope_missing": 1, "publisher=erp": 1, "for=publishers": 0, strings.Split(token, ".")[1]: -1} {
		if got := strings.Count(log, what); n > 0 && got != n || n == 0 && got == 0 || n < 0 && got > 0 {
			t.Errorf("%q stands %d times in the log", what, got)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}
