package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"downlink/internal/testkit"
)

// site is a page's origin: it serves nothing but the page.
func site(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>a page</title>")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// watchStream opens an EventSource on another origin and notes what comes.
const watchStream = `(() => {
	window.seen = {Opens: 0, Errors: 0, Closed: false, Resyncs: [], Events: []};
	window.source = new EventSource(%q, {withCredentials: %v});
	const note = list => e => list.push({ID: e.lastEventId, Type: e.type, Data: e.data});
	source.onopen = () => seen.Opens++;
	source.onerror = () => { seen.Errors++; seen.Closed = source.readyState === EventSource.CLOSED; };
	source.addEventListener('resync', note(seen.Resyncs));
	source.addEventListener('n', note(seen.Events));
})()`

// readByFetch reads a stream as a program in a page does, with headers that
// need the gateway's word beforehand, up to the text that it waits for.
const readByFetch = `(async () => {
	try {
		const answer = await fetch(%q, {credentials: 'include', headers: {'Last-Event-ID': %q, 'Downlink-Client': 'page/1', 'Cache-Control': 'no-store'}});
		const groups = answer.headers.get('Downlink-Groups');
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		let text = '';
		while (!text.includes(%q)) {
			const {value, done} = await reader.read();
			if (done) break;
			text += value;
		}
		await reader.cancel();
		return {Status: answer.status, Groups: groups, Text: text};
	} catch (e) {
		return {Status: 0, Groups: '', Text: String(e)};
	}
})()`

type fetched struct {
	Status       int
	Groups, Text string
}

type watched struct {
	seen
	Closed bool
}

// visit shows a page of an origin.
func (p *page) visit(origin string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(origin)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) watch(url string, credentials bool) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(watchStream, url, credentials))); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) watched() watched {
	p.t.Helper()
	s, err := chromedp.Run(p.ctx, chromedp.Evaluate[watched]("seen"))
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *page) fetch(url, cursor, until string) fetched {
	p.t.Helper()
	f, err := chromedp.Run(p.ctx, chromedp.Evaluate[fetched](fmt.Sprintf(readByFetch, url, cursor, until), chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// TestPagesOfOtherOrigins: a browser, pages of a listed and of another origin,
// a ticket, and a gateway that goes and comes back.
func TestPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listed, other := site(t), site(t)
	address := testkit.LastingAddr(t)
	start := func() *testkit.Gateway {
		return program.StartGateway(t, ticketArgs(t, dir, "file:"+filepath.Join(dir, "log"), "--listen", address, "--cors-origins", listed)...)
	}
	g := start()
	publish := func(n int) message {
		r := call(t, nil, "POST", g.Backend+"/v1/events", fmt.Sprintf(`{"device":"kiosk-1","type":"n","text":"%d"}`, n), asJSON, bearer(opsToken))
		var stored struct{ ID string }
		if err := json.Unmarshal([]byte(r.body), &stored); err != nil || r.status != 200 {
			t.Fatal(r)
		}
		return message{stored.ID, "n", fmt.Sprint(n)}
	}
	p := openPage(t, g, "n")
	url := g.Device + getTicket(t, g, `{"device":"kiosk-1","groups":["lobby"]}`)

	p.visit(other)
	p.watch(url, true)
	testkit.Eventually(t, "the page that isn't listed is told no, for good", func() bool { return p.watched().Closed })
	if s := p.watched(); s.Opens != 0 || len(s.Resyncs) != 0 {
		t.Errorf("it got %+v", s)
	}
	if f := p.fetch(url, "", "x"); f.Status != 0 {
		t.Errorf("by fetch it got %+v", f)
	}

	p.visit(listed) // the ticket wasn't used up
	p.watch(url, true)
	testkit.Eventually(t, "the listed page has its stream", func() bool { s := p.watched(); return s.Opens == 1 && len(s.Resyncs) == 1 })
	var sent []message
	for n := range 3 {
		sent = append(sent, publish(n))
	}
	testkit.Eventually(t, "events come", func() bool { return len(p.watched().Events) == len(sent) })
	g.Terminate()
	testkit.Eventually(t, "the page notices", func() bool { return p.watched().Errors > 0 })
	g = start()
	sent = append(sent, publish(len(sent)))
	testkit.Eventually(t, "the page comes back by its cookie and its cursor", func() bool { return len(p.watched().Events) >= len(sent) })
	s := p.watched()
	sameMessages(t, s.Events, sent)
	if len(s.Resyncs) != 1 || s.Closed {
		t.Errorf("%+v", s)
	}

	f := p.fetch(url, sent[0].ID, "data: "+sent[3].Data)
	if f.Status != 200 || f.Groups == "" || strings.Contains(f.Text, "resync") || strings.Contains(f.Text, "data: 0\n") || !strings.Contains(f.Text, "data: 1\n") {
		t.Errorf("by fetch, from a cursor: %+v", f)
	}
	if f := p.fetch(g.Device+"/events?ticket=x", "", "x"); f.Status != 401 || !strings.Contains(f.Text, "ticket") {
		t.Errorf("a refusal that the page may read: %+v", f)
	}
	p.watch(url, false) // without cookies the used ticket is of no use
	testkit.Eventually(t, "it is refused for good", func() bool { s := p.watched(); return s.Closed && s.Opens == 0 })
}

// TestPagesOfOtherSites: over TLS a page of another site keeps its cookie, and
// comes back by it.
func TestPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	listed := strings.Replace(site(t), "127.0.0.1", "localhost", 1) // for a browser another site
	address := testkit.LastingAddr(t)
	start := func() *testkit.Gateway {
		return program.StartGateway(t, ticketArgs(t, dir, "file:"+filepath.Join(dir, "log"), "--listen", address, "--cors-origins", listed,
			"--tls-cert-file", filepath.Join(dir, "server.pem"), "--tls-key-file", filepath.Join(dir, "server-key.pem"))...)
	}
	g := start()
	p := openPage(t, g, "n")
	p.visit(listed)
	p.watch(g.Device+getTicket(t, g, `{"device":"kiosk-1"}`), true)
	testkit.Eventually(t, "the page has its stream", func() bool { s := p.watched(); return s.Opens == 1 && len(s.Resyncs) == 1 })
	g.Terminate()
	testkit.Eventually(t, "the page notices", func() bool { return p.watched().Errors > 0 })
	g = start()
	if r := call(t, nil, "POST", g.Backend+"/v1/events", `{"device":"kiosk-1","type":"n","text":"back"}`, asJSON, bearer(opsToken)); r.status != 200 {
		t.Fatal(r)
	}
	testkit.Eventually(t, "the page comes back by its cookie", func() bool { return len(p.watched().Events) == 1 })
	if s := p.watched(); s.Closed || len(s.Resyncs) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestCrossOriginAnswers: what a browser needs stands on every answer, by every
// way through the gateway.
func TestCrossOriginAnswers(t *testing.T) {
	t.Parallel()
	const page = "https://shop.example"
	dir := t.TempDir()
	g := program.StartGateway(t, ticketArgs(t, dir, "file:"+filepath.Join(dir, "log"), "--cors-origins", page)...)
	token := testkit.HS256(deviceSecret, "pos-1", time.Hour, "")
	for _, c := range []struct {
		what, method, path, origin string
		header                     []string
		status                     int
		allowed                    bool
	}{
		{"stream", "HEAD", "/events", page, []string{bearer(token)}, 200, true},
		{"stream, net/http", "HEAD", "/events", page, []string{bearer(token), "Pragma: no-cache"}, 200, true},
		{"no token", "GET", "/events", page, nil, 401, true},
		{"no token, net/http", "GET", "/events", page, []string{"Pragma: no-cache"}, 401, true},
		{"wrong type", "GET", "/events", page, []string{bearer(token), "Accept: text/html"}, 406, true},
		{"poll", "GET", "/poll?wait=0", page, []string{bearer(token)}, 200, true},
		{"poll, no token", "GET", "/poll?wait=0", page, nil, 401, true},
		{"preflight", "OPTIONS", "/events", page, []string{"Access-Control-Request-Method: GET", "Access-Control-Request-Headers: last-event-id"}, 204, true},
		{"preflight for a poll", "OPTIONS", "/poll", page, []string{"Access-Control-Request-Method: GET"}, 204, true},
		{"foreign preflight", "OPTIONS", "/events", page + ".evil.example", []string{"Access-Control-Request-Method: GET"}, 403, false},
		{"foreign", "GET", "/events", "https://evil.example", []string{bearer(token)}, 403, false},
		{"foreign, net/http", "GET", "/events", "https://evil.example", []string{bearer(token), "Pragma: no-cache"}, 403, false},
		{"null", "GET", "/events", "null", []string{bearer(token)}, 403, false},
		{"its own", "HEAD", "/events", g.Device, []string{bearer(token)}, 200, false},
		{"no page", "HEAD", "/events", "", []string{bearer(token)}, 200, false},
	} {
		header := c.header
		if c.origin != "" {
			header = append(header, "Origin: "+c.origin)
		}
		r := call(t, nil, c.method, g.Device+c.path, "", header...)
		if r.status != c.status || (r.header.Get("Access-Control-Allow-Origin") == page) != c.allowed || (r.header.Get("Access-Control-Allow-Credentials") == "true") != c.allowed {
			t.Errorf("%s: %d %v %s", c.what, r.status, r.header, r.body)
		}
		if r.header.Get("Vary") != "Origin" {
			t.Errorf("%s: a cache may show it to others: %v", c.what, r.header)
		}
	}
}
