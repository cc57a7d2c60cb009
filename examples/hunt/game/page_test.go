package game

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/chromedp"

	"downlink/internal/testkit"
)

// browserNames are those under which scripts/deps looks for one, too.
func browserNames() []string {
	return []string{
		"headless_shell", "headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	}
}

// A tab is the hunt's page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func openTab(t *testing.T, url string) *tab {
	t.Helper()
	dir := t.TempDir()
	temporary := os.TempDir()
	if runtime.GOOS == "linux" { // elsewhere the path of its socket would be too long
		temporary = dir
	}
	ctx, endBrowser := chromedp.NewExecAllocator(context.Background(),
		chromedp.Env("TMPDIR="+temporary),
		chromedp.ExecPath(browser(t)), chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), // small in many containers
	)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		// In order, or its processes leave files behind; and in any case.
		ordered, late := context.WithTimeout(ctx, time.Minute)
		_ = chromedp.Cancel(ordered)
		late()
		closeTab()
		endBrowser()
		testkit.Eventually(t, "nothing writes into the browser's directory any more", func() bool { return os.RemoveAll(dir) == nil })
	})
	p := &tab{t, ctx}
	p.do(chromedp.Navigate(url))
	return p
}

func browser(t *testing.T) string {
	t.Helper()
	for _, name := range browserNames() {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("this test needs a Chromium: install one with `apt-get install chromium` or `brew install --cask google-chrome`")
	return ""
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatalf("in the browser: %v", err)
	}
}

// script is a text that an expression gives.
func (p *tab) script(expression string) string {
	p.t.Helper()
	s, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("(async () => String("+expression+"))()", chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return s
}

// await waits until an expression gives a text.
func (p *tab) await(expression, want string) {
	p.t.Helper()
	var got string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s is %q, not %q", expression, got, want)
		}
	}()
	testkit.Eventually(p.t, expression+" is "+want, func() bool { got = p.script(expression); return got == want })
}

// join lets the page join.
func (p *tab) join(name string) {
	p.t.Helper()
	p.await("document.getElementById('state').dataset.state", "new")
	p.script(fmt.Sprintf("(document.getElementById('name').value = %q, document.querySelector('#join button').click())", name))
}

// player is whom the page plays as.
func (p *tab) player() string {
	p.t.Helper()
	return p.script("await (await fetch('/me')).json().then(me => me.player)")
}

// solve clicks on the cross of a challenge, once the page shows it.
func (p *tab) solve(c Challenge) {
	p.t.Helper()
	p.await("[...document.querySelectorAll('#map button')].map(b => b.dataset.land).join('')", c.Map)
	p.script("document.querySelector('#map [data-land=X]').click()")
}

// nodes is how many nodes the page has, attached or not, that nothing collects.
func (p *tab) nodes() int64 {
	p.t.Helper()
	n, err := chromedp.Run(p.ctx, func(ctx context.Context, target *chromedp.Target) (int64, error) {
		if _, err := cdp.Call(ctx, target, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
		counted, err := cdp.Call(ctx, target, memory.GetDOMCounters, cdp.Empty{})
		if err != nil {
			return 0, err
		}
		return counted.Nodes, nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

const (
	stateOf = "document.getElementById('state').dataset.state"
	total   = "document.getElementById('total').textContent"
	ofBoard = "[...document.querySelectorAll('#board tr')].map(r => r.children[1].textContent + ' ' + r.children[2].textContent).join()"
)

// hostPage starts a hunt at a lasting address, whose page its gateway lets in.
func hostPage(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	address := testkit.LastingAddr(t)
	return start(t, testkit.StartRedis(t), change, address, "--cors-origins", "http://"+address, "--retry", "200ms",
		"--listen", testkit.LastingAddr(t), "--backend-listen", testkit.LastingAddr(t))
}

// TestPage: a player in a browser waits, is let in, plays, sees others move, gets
// over the end of the gateway, and goes on after the page is loaded anew, though the
// game needs a while to say who it is.
func TestPage(t *testing.T) {
	t.Parallel()
	full := &switched{}
	r := hostPage(t, func(o *Options) { o.Governor = full.allowance })
	full.set(true)
	p := openTab(t, r.url)
	p.join("Ada")
	p.await(stateOf, "waiting")
	if said := p.script("document.getElementById('state').textContent"); !strings.Contains(said, "waiting room") || !strings.Contains(said, "redis_memory") {
		t.Errorf("the page says %q", said)
	}
	full.set(false)
	p.await(stateOf, "live")

	ada := p.player()
	p.solve(r.rules().challenge(ada, 1))
	p.await("document.querySelectorAll('#drops li').length", "1")
	p.await(total+" > 0", "true")
	points := p.script(total)
	p.await(ofBoard, "Ada "+points)
	p.await("document.getElementById('rank').textContent", "1")

	bob := r.join("<b>Bob</b>")
	solved := int64(0)
	for c := range 41 { // of at least 5 points each: more than any one of Ada's
		solved = r.solveRight(bob.Token, r.rules().challenge(bob.Player, c+1)).Total
	}
	p.await(ofBoard, fmt.Sprintf("<b>Bob</b> %d,Ada %s", solved, points))

	r.gateway.Kill9()
	p.await(stateOf, "reconnecting")
	r.restartGateway()
	p.await(stateOf, "live")
	p.solve(r.rules().challenge(ada, 2))
	p.await("document.querySelectorAll('#drops li').length", "2")

	points = p.script(total)
	r.redis.Stop()
	p.do(chromedp.Navigate(r.url))
	if offered := p.script("!document.getElementById('join').hidden"); offered != "false" {
		t.Error("whoever plays already may join anew before the page knows who it is")
	}
	r.redis.Cont()
	p.await(stateOf, "live")
	p.await(total, points)
	p.await("document.querySelectorAll('#drops li').length", "2")
}

// TestPageDoesNotGrow: 10,000 events, as many as may come in a minute, leave the
// page as large as it was.
func TestPageDoesNotGrow(t *testing.T) {
	t.Parallel()
	const events = 10_000
	r := hostPage(t, nil)
	p := openTab(t, r.url)
	p.join("Ada")
	p.await(stateOf, "live")
	player := p.player()
	testkit.Eventually(t, "the game's own board is out", func() bool { return r.metric(`hunt_published_total{what="board"}`) == 1 })
	send := func(from, to int) {
		var lines strings.Builder
		for n := from; n < to; n++ {
			fmt.Fprintf(&lines, `{"device":%q,"type":"drop","payload":{"challenge":%d,"item":"pearl %d","points":50,"total":%d}}`+"\n", player, n, n, 50*n)
			if n%10 == 0 {
				fmt.Fprintf(&lines, `{"device":"*","type":"board","payload":{"version":%d,"players":2,"top":[{"player":%q,"name":"Ada %d","points":%d},{"player":"p-2","name":"Bob","points":%d}]}}`+"\n", n, player, n, 50*n, n)
			}
		}
		if status, said := testkit.Post(t, r.gateway.Backend+"/v1/events", "application/x-ndjson", lines.String()); status != http.StatusOK || strings.Contains(said, "error") {
			t.Fatalf("publishing: %d %.200s", status, said)
		}
	}
	send(1, 101) // all that the page makes once is there
	p.await(total, "5000")
	before := p.nodes()
	for n := 101; n < events; n += 1000 {
		send(n, min(n+1000, events+1))
	}
	p.await(total, fmt.Sprint(50*events))
	testkit.Eventually(t, "what is drawn no more is collected", func() bool {
		after := p.nodes()
		t.Logf("the page had %d nodes and has %d after %d events", before, after, events)
		return after <= before+before/10
	})
	if shown := p.script("document.querySelectorAll('#drops li').length + ' ' + document.querySelectorAll('#board tr').length"); shown != "10 2" {
		t.Errorf("it shows %s lines, not 10 finds and 2 players", shown)
	}
	if first := p.script("document.querySelector('#drops li').textContent"); first != fmt.Sprintf("pearl %d: 50 points", events) {
		t.Errorf("its newest find is %q", first)
	}
}
