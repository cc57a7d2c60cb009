package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// TestSecretsLeaveNoTrace puts a marker into every kind of credential and into
// every file and URL of secrets, and looks for it in everything that the gateway
// and its tools say, while all is well, while it isn't, and after.
// TestTokensLeaveNoTrace has more of devices' tokens.
func TestSecretsLeaveNoTrace(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	const marker = "M4RK3R"
	redis := testkit.StartRedis(t, testkit.RedisUser("gateway", marker, "~* &* +@all"))
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	publisher, secret := marker+"-publisher-0123456789abcdef012345", marker+" a secret of more than thirty-two bytes"
	put(t, in("publishers.yml"), "- {name: ops, sha256: "+sha(publisher)+`, devices: ["*"], groups: ["*"], broadcast: true, tickets: true, admin: true}`+"\n")
	put(t, in("secret"), secret+"\n")
	put(t, in("token"), publisher+"\n")
	put(t, in("downlink.yml"), "log: "+redis.URL()+"\nlog_level: debug\nauth: jwt,tickets\njwt_hmac_secret_file: "+in("secret")+"\nticket_secret_file: "+in("secret")+
		"\nbackend_auth: tokens,jwt\npublishers_file: "+in("publishers.yml")+"\nbackend_jwt_hmac_secret_file: "+in("secret")+"\nbackend_jwt_audience: publishers\ncors_origins: https://shop.example\n")
	g := program.StartGateway(t, args("--config", in("downlink.yml"))...)

	said := &strings.Builder{}
	hear := func(r reply) { fmt.Fprintln(said, r.status, r.header, r.body) }
	order := call(t, nil, "POST", g.Backend+"/v1/tickets", `{"device":"kiosk-1"}`, asJSON, bearer(publisher))
	ticket, _, _ := strings.Cut(strings.TrimPrefix(order.body, `{"ticket":"`), `"`)
	opened := at(t, g, "/events?ticket="+ticket)
	opened.Until(": downlink")
	cookie := strings.TrimPrefix(cookieOf(t, opened.Header), "Cookie: ")
	_, session, _ := strings.Cut(cookie, "=")
	device := testkit.HS256(secret, "pos-1", time.Hour, "")
	jwt := testkit.HS256(secret, "crm", time.Hour, `,"aud":"publishers","downlink":{"admin":true}`)
	whole := []string{marker, sha(publisher), ticket, session, device, jwt}
	secrets := whole
	for _, s := range []string{ticket, session, device, jwt} {
		secrets = append(secrets, strings.Split(s, ".")[1:]...) // each half by itself
	}

	for _, credential := range whole {
		for _, further := range []string{"X: y", "Pragma: no-cache", "Origin: https://evil.example"} {
			for _, path := range []string{
				"/events?ticket=" + credential, "/events?ticket=" + credential + "&ticket=" + credential, "/events?access_token=" + credential,
				"/poll?wait=0&ticket=" + credential, "/poll?wait=0&access_token=" + credential, "/events?lastEventId=" + credential, "/nothing?ticket=" + credential,
			} {
				stream := at(t, g, path, further, "Cookie: "+cookie+"x", "Authorization: Bearer "+credential+"x")
				fmt.Fprintln(said, stream.Status, stream.Header)
				if stream.Status != 200 {
					said.WriteString(stream.Rest())
				}
				stream.Close()
			}
			for _, c := range []string{"POST /v1/events", "POST /v1/tickets", "GET /v1/limits", "GET /debug/pprof/", "GET /nothing", "GET /v1/devices/pos-1", "PATCH /v1/limits"} {
				method, path, _ := strings.Cut(c, " ")
				hear(call(t, nil, method, g.Backend+path, "{}", asJSON, further, bearer(credential+"x")))
				hear(call(t, nil, method, g.Backend+path, "{}", asJSON, further, "Authorization: Basic "+credential))
			}
		}
	}
	for _, path := range []string{"/metrics", "/v1/limits", "/v1/devices/pos-1", "/v1/devices/kiosk-1", "/v1/revoked", "/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap?debug=1", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1", "/readyz"} {
		hear(call(t, nil, "GET", g.Backend+path, "", bearer(publisher)))
	}
	for _, tool := range []string{"explain pos-1", "explain kiosk-1", "limits", "publish --device pos-1 --type t x", "revoke kiosk-1", "disconnect pos-1"} {
		r := program.Run(t, "", append(strings.Fields(tool), "--backend", g.Backend, "--token-file", in("token"))...)
		if r.Code != 0 && !strings.HasPrefix(tool, "explain") { // which tells by its code whether the device is connected
			t.Errorf("%s: %d %s", tool, r.Code, r.Err)
		}
		said.WriteString(r.Out + r.Err)
	}
	for _, tool := range []string{"check", "token inspect --auth jwt x"} {
		r := program.Run(t, "", append(strings.Fields(tool), "--config", in("downlink.yml"), "--listen", "127.0.0.1:0")...)
		said.WriteString(r.Out + r.Err)
	}
	if runtime.GOOS == "linux" {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		said.Write(line)
	}
	for _, file := range []string{"secret", "publishers.yml"} { // complaints about them
		put(t, in(file), marker)
	}
	testkit.Eventually(t, "the files are complained about", func() bool {
		log := g.Log()
		return strings.Contains(log, "source=publishers") && strings.Contains(log, "source=tickets") && strings.Contains(log, "source=jwt") && strings.Contains(log, "source=backend_jwt")
	})
	redis.Kill9()
	hear(call(t, nil, "POST", g.Backend+"/v1/events", `{"device":"pos-1","type":"t","text":""}`, asJSON, bearer(publisher)))
	g.Terminate()
	said.WriteString(g.Log())

	text := said.String()
	for _, s := range secrets {
		if i := strings.Index(text, s); i >= 0 {
			t.Errorf("%q is told: …%s…", s, text[max(0, i-200):min(len(text), i+100)])
		}
	}
	for _, looked := range []string{"session ended", "ticket_used", "downlink_tickets_issued_total", "goroutine ", "max_connections"} {
		if !strings.Contains(text, looked) {
			t.Errorf("%q wasn't looked at", looked)
		}
	}
	if n := len(regexp.MustCompile(`urn:downlink:problem:unauthorized`).FindAllString(text, -1)); n < 50 {
		t.Errorf("only %d refusals were looked at", n)
	}
}
