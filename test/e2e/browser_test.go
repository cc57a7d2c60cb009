package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"downlink/internal/testkit"
)

// browserNames are those under which scripts/deps looks for one, too.
var browserNames = []string{
	"headless_shell", "headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
}

// A page is a browser's page with the native EventSource of a device.
type page struct {
	t   *testing.T
	ctx context.Context
}

// seen is what the page's script has noted.
type seen struct {
	Opens, Errors int
	Resyncs       []message
	Events        []message
}

type message struct{ ID, Type, Data string }

// record opens the stream and notes what comes of it, for the types given.
const record = `(() => {
	window.seen = {Opens: 0, Errors: 0, Resyncs: [], Events: []};
	const source = new EventSource('/events?device=demo');
	const note = list => e => list.push({ID: e.lastEventId, Type: e.type, Data: e.data});
	source.onopen = () => seen.Opens++;
	source.onerror = () => seen.Errors++;
	source.addEventListener('resync', note(seen.Resyncs));
	for (const type of %s) source.addEventListener(type, note(seen.Events));
})()`

// openPage opens a stream for the device "demo" on a page of the gateway's own
// origin.
func openPage(t *testing.T, g *testkit.Gateway, types ...string) *page {
	t.Helper()
	p := openBrowser(t)
	listened, err := json.Marshal(types)
	if err == nil {
		err = chromedp.Do(p.ctx, chromedp.Navigate(g.Device+"/healthz"), chromedp.Evaluate[chromedp.Void](fmt.Sprintf(record, listened)))
	}
	if err != nil {
		t.Fatalf("opening a page in the browser: %v", err)
	}
	return p
}

// openBrowser starts a browser with a fresh profile.
func openBrowser(t *testing.T) *page {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	temporary := os.TempDir()
	if runtime.GOOS == "linux" { // elsewhere the path of its socket would be too long
		temporary = dir
	}
	ctx, endBrowser := chromedp.NewExecAllocator(ctx,
		chromedp.Env("TMPDIR="+temporary),
		chromedp.WSURLReadTimeout(2*time.Minute), // a busy machine needs some of it
		chromedp.ExecPath(findBrowser(t)), chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),     // small in many containers
		chromedp.Flag("ignore-certificate-errors", true), // ours are of an authority of the test's own
	)
	ctx, closePage := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		// In order, or its processes leave files behind; and in any case.
		ordered, late := context.WithTimeout(ctx, 10*time.Second)
		_ = chromedp.Cancel(ordered)
		late()
		closePage()
		endBrowser()
		cancel()
	})
	return &page{t: t, ctx: ctx}
}

func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range browserNames {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("this test needs a Chromium: install one with `apt-get install chromium` or `brew install --cask google-chrome`")
	return ""
}

// seen asks the page.
func (p *page) seen() seen {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[seen]("seen"))
	if err != nil {
		p.t.Fatalf("asking the page: %v", err)
	}
	return s
}

// await waits until the page has seen enough.
func (p *page) await(what string, enough func(seen) bool) (s seen) {
	p.t.Helper()
	testkit.Eventually(p.t, what, func() bool { s = p.seen(); return enough(s) })
	return s
}

// announce publishes an event for "demo" and returns it as the page must see it.
func announce(t *testing.T, g *testkit.Gateway, typ, text string) message {
	t.Helper()
	status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json",
		fmt.Sprintf(`{"device":"demo","type":%s,"text":%s}`, quoted(typ), quoted(text)))
	var stored struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &stored); status != 200 || err != nil {
		t.Fatalf("publishing %q: %d %s", text, status, answer)
	}
	return message{stored.ID, typ, text}
}

// TestBrowser: a page's own EventSource, which keeps its cursor itself,
// survives every end of the gateway. Nothing is lost, repeated or resynced.
func TestBrowser(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*testkit.Gateway){
		"killed":     (*testkit.Gateway).Kill9,
		"terminated": func(g *testkit.Gateway) { g.Terminate() },
	}
	t.Run("Redis", func(t *testing.T) {
		onlyOnce(t)
		t.Parallel()
		redis := testkit.StartRedis(t)
		surviveRestarts(t, redis.URL(), ends, func(n int) message {
			id, ok := redis.Do("XADD", demoShard, "*", "dev", "demo", "type", "n", "payload", strconv.Itoa(n)).(string)
			if !ok {
				t.Fatal("XADD gave no ID")
			}
			return message{id, "n", strconv.Itoa(n)}
		})
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		surviveRestarts(t, "file:"+t.TempDir(), ends, nil)
	})
}

// surviveRestarts ends a gateway in several ways and starts it on the same
// address, with a page connected. past publishes while no gateway runs; it may
// be nil.
func surviveRestarts(t *testing.T, log string, ends map[string]func(*testkit.Gateway), past func(n int) message) {
	t.Helper()
	address := testkit.LastingAddr(t)
	start := func() *testkit.Gateway {
		return program.StartGateway(t, args("--log", log, "--listen", address)...)
	}
	g := start()
	p := openPage(t, g, "n")
	p.await("the page is told that it is new", func(s seen) bool { return len(s.Resyncs) > 0 })
	var sent []message
	send := func() { sent = append(sent, announce(t, g, "n", strconv.Itoa(len(sent)))) }
	for how, end := range ends {
		for range 2 {
			for range 5 {
				send()
			}
			before := p.await("events come", func(s seen) bool { return len(s.Events) >= len(sent) })
			send() // may or may not be read before the end
			end(g)
			p.await("the page notices that the gateway was "+how, func(s seen) bool { return s.Errors > before.Errors })
			if past != nil {
				sent = append(sent, past(len(sent)))
			}
			g = start()
			send()
			p.await("the page comes back by itself", func(s seen) bool { return s.Opens > before.Opens && len(s.Events) >= len(sent) })
		}
	}
	s := p.seen()
	if len(s.Resyncs) != 1 || !strings.Contains(s.Resyncs[0].Data, `"no-cursor"`) || s.Resyncs[0].ID == "" {
		t.Errorf("resyncs: %q", s.Resyncs)
	}
	sameMessages(t, s.Events, sent)
}

func sameMessages(t *testing.T, got, want []message) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("message %d, %.80q, is missing", i, want[i])
		case i >= len(want):
			t.Errorf("message %d, %.80q, is one too many", i, got[i])
		case got[i] != want[i]:
			t.Errorf("message %d is %.80q, want %.80q", i, got[i], want[i])
		}
	}
}

// TestBrowserPayloads: a browser's parser reads what docs/protocol.md says.
func TestBrowserPayloads(t *testing.T) {
	t.Parallel()
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir())...)
	odd := types()
	names := []string{"t"}
	for _, typ := range odd {
		names = append(names, typ)
	}
	p := openPage(t, g, names...)
	p.await("the page is told that it is new", func(s seen) bool { return len(s.Resyncs) > 0 })
	var sent []message
	for _, payload := range payloads() {
		sent = append(sent, announce(t, g, "t", payload))
	}
	for _, typ := range odd {
		sent = append(sent, announce(t, g, typ, ""))
	}
	for i := range sent {
		sent[i].Data = arrives(sent[i].Data)
	}
	s := p.await("everything comes", func(s seen) bool { return len(s.Events) >= len(sent) })
	sameMessages(t, s.Events, sent)
	if len(s.Resyncs) != 1 || s.Errors != 0 {
		t.Errorf("resyncs: %q, %d errors", s.Resyncs, s.Errors)
	}
}
