package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// ticketArgs are those of a gateway that takes tickets, beside JWTs.
func ticketArgs(t *testing.T, dir, log string, more ...string) []string {
	t.Helper()
	put(t, filepath.Join(dir, "publishers.yml"), publishersFile())
	put(t, filepath.Join(dir, "secret"), deviceSecret+"\n")
	put(t, filepath.Join(dir, "tickets"), "tickets-"+deviceSecret+"\n")
	return args(append([]string{
		"--log", log, "--auth", "jwt,tickets", "--jwt-hmac-secret-file", filepath.Join(dir, "secret"), "--ticket-secret-file", filepath.Join(dir, "tickets"),
		"--ticket-ttl", "5m", // a busy machine may need some time to come to use it
		"--backend-auth", "tokens", "--publishers-file", filepath.Join(dir, "publishers.yml"),
	}, more...)...)
}

// getTicket asks for one, and returns the path that it opens.
func getTicket(t *testing.T, g *testkit.Gateway, order string) string {
	t.Helper()
	r := call(t, nil, "POST", g.Backend+"/v1/tickets", order, asJSON, bearer(webToken))
	var answer struct {
		Ticket  string
		Expires time.Time
		Hint    string `json:"url_hint"`
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || r.status != 200 || !strings.HasPrefix(answer.Hint, "/events?ticket=") || time.Until(answer.Expires) < 0 {
		t.Fatalf("%s: %d %s", order, r.status, r.body)
	}
	return answer.Hint
}

// cookieOf is the header line by which a browser sends back what it was given.
func cookieOf(t *testing.T, header http.Header) string {
	t.Helper()
	c, err := http.ParseSetCookie(header.Get("Set-Cookie"))
	if err != nil || !c.HttpOnly || c.Path != "/" {
		t.Fatalf("%v: %v", header, err)
	}
	return "Cookie: " + c.Name + "=" + c.Value
}

// at opens a path of a gateway, with header lines.
func at(t *testing.T, g *testkit.Gateway, path string, header ...string) *testkit.Stream {
	t.Helper()
	return (&guarded{t: t, Gateway: g}).open(&http.Transport{DisableKeepAlives: true}, path, header...)
}

// TestTickets: a ticket works once, on any gateway; its cookie takes the page
// over a gateway's end and a log that is away; orders about devices hold.
func TestTickets(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	dir := t.TempDir()
	one := program.StartGateway(t, ticketArgs(t, dir, redis.URL())...)
	two := program.StartGateway(t, ticketArgs(t, dir, redis.URL())...)
	path := getTicket(t, one, `{"device":"kiosk-1","groups":["lobby"]}`)
	if r := call(t, nil, "HEAD", one.Device+path, ""); r.status != 200 || r.header.Get("Set-Cookie") != "" {
		t.Errorf("HEAD: %d %v", r.status, r.header)
	}
	if r := call(t, nil, "OPTIONS", one.Device+path, ""); r.status != 204 {
		t.Errorf("OPTIONS: %d", r.status)
	}
	stream := at(t, two, path+"&device=other", bearer(testkit.HS256(deviceSecret, "pos-1", time.Hour, ""))) // the ticket wins
	stream.Until(": downlink")
	cookie := cookieOf(t, stream.Header)
	for _, target := range []string{"other", "pos-1", "kiosk-1", "@lobby"} {
		body := fmt.Sprintf(`{"device":%q,"type":"t","text":"for %s"}`, target, target)
		if r := call(t, nil, "POST", one.Backend+"/v1/events", body, asJSON, bearer(opsToken)); r.status != 200 {
			t.Fatal(r)
		}
	}
	if got := stream.Until("data: for @lobby"); strings.Contains(got, "other") || strings.Contains(got, "pos-1") || !strings.Contains(got, "for kiosk-1") {
		t.Errorf("%s", got)
	}
	for name, g := range map[string]*testkit.Gateway{"one": one, "two": two} {
		if r := call(t, nil, "GET", g.Device+path, ""); r.status != 401 || !strings.Contains(r.body, "used before") || r.header.Get("WWW-Authenticate") == "" {
			t.Errorf("again, at %s: %d %s", name, r.status, r.body)
		}
	}
	two.Kill9()
	at(t, one, path, cookie).Until(": downlink")
	redis.Kill9()
	at(t, one, path, cookie).Until(": downlink")
	if r := call(t, nil, "GET", one.Device+getTicket(t, one, `{"device":"kiosk-2"}`), ""); r.status != 200 || r.header.Get("Downlink-Refused") != "tickets_unavailable" || !strings.Contains(r.body, "retry: ") {
		t.Errorf("with Redis away: %d %v %s", r.status, r.header, r.body)
	}
	redis.Start()
	testkit.Eventually(t, "orders are taken again", func() bool {
		return call(t, nil, "POST", one.Backend+"/v1/devices/kiosk-1/revoke", "{}", asJSON, bearer(opsToken)).status == 200
	})
	testkit.Eventually(t, "the cookie doesn't help a revoked device", func() bool {
		return call(t, nil, "HEAD", one.Device+path, "", cookie).status == 204
	})
	fresh := getTicket(t, one, `{"device":"kiosk-1"}`)
	if r := call(t, nil, "GET", one.Device+fresh, ""); r.status != 204 || r.header.Get("Set-Cookie") != "" {
		t.Errorf("a ticket of a revoked device: %d %v", r.status, r.header)
	}
	if r := call(t, nil, "DELETE", one.Backend+"/v1/devices/kiosk-1/revoke", "", bearer(opsToken)); r.status != 200 {
		t.Error(r)
	}
	testkit.Eventually(t, "the ticket wasn't used up by who was revoked", func() bool {
		return call(t, nil, "HEAD", one.Device+fresh, "").status == 200
	})
	at(t, one, fresh).Until(": downlink")
}

// TestTicketSession: the stream ends with the cookie's time, and who may not
// have tickets gets none.
func TestTicketSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := program.StartGateway(t, ticketArgs(t, dir, "file:"+filepath.Join(dir, "log"))...)
	path := getTicket(t, g, `{"device":"kiosk-1","session_s":2}`)
	stream := at(t, g, path)
	stream.Until(": downlink")
	cookie := cookieOf(t, stream.Header)
	if rest := stream.Rest(); !strings.Contains(rest, "retry: ") {
		t.Errorf("the end: %q", rest)
	}
	if r := call(t, nil, "GET", g.Device+path, "", cookie); r.status != 401 {
		t.Errorf("after the session: %d %s", r.status, r.body)
	}
	for _, c := range []struct {
		token, order string
		status       int
	}{
		{webToken, `{"device":"pos-1"}`, 403}, {webToken, `{"device":"kiosk-1","groups":["north"]}`, 403},
		{erpToken, `{"device":"pos-1"}`, 403}, {opsToken, `{"device":"pos-1"}`, 403}, {"", `{"device":"pos-1"}`, 401},
		{webToken, `{"device":"kiosk-1","ttl_s":301}`, 400},
	} {
		if r := call(t, nil, "POST", g.Backend+"/v1/tickets", c.order, asJSON, bearer(c.token)); r.status != c.status {
			t.Errorf("%+v: %d %s", c, r.status, r.body)
		}
	}
	poll := strings.Replace(getTicket(t, g, `{"device":"kiosk-1"}`), "/events", "/poll", 1) + "&wait=0"
	r := call(t, nil, "GET", g.Device+poll, "")
	if r.status != 200 || !strings.Contains(r.body, "no-cursor") {
		t.Fatalf("poll: %d %s", r.status, r.body)
	}
	if again := call(t, nil, "GET", g.Device+poll, "", cookieOf(t, r.header)); again.status != 200 {
		t.Errorf("poll again: %d %s", again.status, again.body)
	}
	off := program.StartGateway(t, args("--log", "file:"+t.TempDir())...)
	if r := call(t, nil, "POST", off.Backend+"/v1/tickets", `{"device":"a"}`, asJSON); r.status != 404 || !strings.Contains(r.body, "ticket_secret_file") {
		t.Errorf("without a secret: %d %s", r.status, r.body)
	}
}
