package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"downlink/internal/limits"
	"downlink/internal/testkit"
)

// TestGovernorInTheOpen: the ratio is lowered, a device is refused, and everybody who
// is asked says by which signal; who watches has seen it.
func TestGovernorInTheOpen(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 40mb", "maxmemory-policy noeviction"))
	g := program.StartGateway(t, args("--log", redis.URL(), "--max-connections", "10", "--governor-reserve", "0")...)
	set := func(code int, words []string, settings ...string) {
		t.Helper()
		r := program.Run(t, "", append([]string{"governor", "set", "--backend", g.Backend}, settings...)...)
		for _, word := range words {
			if r.Code != code || !strings.Contains(r.Out+r.Err, word) {
				t.Fatalf("set %v: %d, no %q in\n%s%s", settings, r.Code, word, r.Out, r.Err)
			}
		}
	}
	set(3, []string{"floor can't be 0.105: here it is the limit governor_floor", "step can't be 7"}, "floor=0.105", "step=7")
	set(0, []string{"floor: 0.2, before 0.1", "signals.redis_memory.levers: publish,admission, before publish"}, "floor=0.2", "fast_step=0.8", "signals.redis_memory.levers=publish,admission")
	if text := said(t, g, "limits", "governor_floor"); !strings.Contains(text, "20 percent") {
		t.Errorf("the floor isn't that limit: %s", text)
	}
	watching := watch(t, g)
	for _, device := range []string{"pos-1", "pos-2"} {
		testkit.Open(t, g.Device+"/events?device="+device, "").Until("data:")
	}
	redis.Do("SETRANGE", "ballast", "36000000", "x")
	testkit.Eventually(t, "admission is lowered", func() bool { return g.Metric(`downlink_throttle_ratio{lever="admission"}`) < 1 })

	const why = "redis_memory of 127.0.0.1:"
	refused := testkit.Open(t, g.Device+"/events?device=pos-3", "")
	if h := refused.Header; h.Get("Downlink-Refused") != "max_connections" || h.Get("Downlink-Signal") != "redis_memory" {
		t.Errorf("pos-3: %d %v", refused.Status, h)
	}
	if n := g.Metric(`downlink_governor_refused_total{lever="admission",signal="redis_memory"}`); n != 1 {
		t.Errorf("%v refusals are counted", n)
	}
	explained(t, "a device that the governor holds out", 4, []string{"pos-3", "--backend", g.Backend}, "pos-3 is NOT connected", "refused max_connections", "the governor: "+why)
	explained(t, "one that was there before", 0, []string{"pos-1", "--backend", g.Backend}, "pos-1 is connected")
	var all limits.List
	if _, text := testkit.Get(t, g.Backend+limits.Path); json.Unmarshal([]byte(text), &all) != nil {
		t.Fatal(text)
	}
	for _, s := range all.Limits {
		if s.Name == "max_connections" && (s.Effective != 2 || s.Configured != 10 || !strings.Contains(s.Why, why)) {
			t.Errorf("%+v", s)
		}
	}
	shown := strings.Join(strings.Fields(said(t, g, "governor", "show")), " ")
	for _, want := range []string{"admission 20 % 2 connections", "20 % redis_memory", "admission was lowered because " + why, "Changed at run time"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show: no %q in\n%s", want, shown)
		}
	}
	testkit.Eventually(t, "who watches has seen it", func() bool {
		return strings.Contains(watching(), "admission fast-fall: 100 % to 20 % (2 connections): "+why)
	})
	page := openConsole(t, g)
	page.shows("admission is at 20 % by redis_memory; publish is at 20 % by redis_memory.", "admission 20 % 2 connections", "redis_memory … % 80 % 92 %", "Live: each change appears as it comes.",
		"1 20", "admission fast-fall 100 % 20 % 2 connections "+why, "fast_step 0.8 0.5", "governor_floor 20 percent", "max_connections 2 connections 2 connections 10 connections")
	set(0, []string{"on: false, before true"}, "on=false")
	page.shows("The governor is off: it holds nothing back.", "admission 100 % 10 connections", "admission opened 20 % 100 % 10 connections the governor was switched off")
	if again := testkit.Open(t, g.Device+"/events?device=pos-3", ""); again.Header.Get("Downlink-Refused") != "" {
		t.Errorf("pos-3 once the governor is off: %d %v", again.Status, again.Header)
	}
	testkit.Eventually(t, "who watches has seen that, too", func() bool {
		return strings.Contains(watching(), "admission opened: 20 % to 100 % (10 connections): the governor was switched off")
	})
	g.Terminate()
	if !strings.Contains(g.Log(), `msg="a setting of the governor was changed" part=governor setting=floor now=0.2`) {
		t.Errorf("the log doesn't tell of the floor: %s", g.Log())
	}
}

// said is what a command prints for a gateway.
func said(t *testing.T, g *testkit.Gateway, command ...string) string {
	t.Helper()
	r := program.Run(t, "", append(command, "--backend", g.Backend)...)
	ends(t, r, 0)
	return r.Out
}

// watch is downlink governor watch, until the end of the test; it returns what that
// has printed.
func watch(t *testing.T, g *testkit.Gateway) (printed func() string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "watch"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := program.Command("governor", "watch", "--backend", g.Backend)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		file.Close()
	})
	return func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// A consolePage is /console in a browser.
type consolePage struct {
	*page
	wrong   func() []string // what the browser has complained of
	forgive string          // that may be complained of
}

func openConsole(t *testing.T, g *testkit.Gateway) *consolePage {
	t.Helper()
	p := &consolePage{page: openBrowser(t)}
	var mu sync.Mutex
	var wrong []string
	p.wrong = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(wrong)
	}
	if err := chromedp.Do(p.ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(p.ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			wrong = append(wrong, ev.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			wrong = append(wrong, ev.Entry.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(p.ctx, chromedp.Navigate(g.Backend+"/console")); err != nil {
		t.Fatalf("opening the console: %v", err)
	}
	return p
}

// shows waits until the page shows texts, whatever is between their words; … stands
// for any word.
func (p *consolePage) shows(texts ...string) {
	p.t.Helper()
	shown, missing := "", ""
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		if err != nil {
			p.t.Fatalf("asking the page, which shows no %q: %v\n%s", missing, err, shown)
		}
		shown, missing = strings.Join(strings.Fields(text), " "), ""
		for _, want := range texts {
			if !regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(want), "…", `\S+`)).MatchString(shown) {
				missing = want
			}
		}
		for _, wrong := range p.wrong() {
			if p.forgive == "" || !strings.Contains(wrong, p.forgive) {
				p.t.Fatalf("the browser complains: %s", wrong)
			}
		}
		if missing == "" {
			return
		}
	}
	p.t.Fatalf("the console shows no %q:\n%s", missing, shown)
}

// TestConsoleWantsAToken: where the port asks who calls, so does the page, and what
// is typed there counts.
func TestConsoleWantsAToken(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "publishers.yml"), publishersFile())
	g := program.StartGateway(t, args("--log", "file:"+filepath.Join(dir, "log"), "--backend-auth", "tokens", "--publishers-file", filepath.Join(dir, "publishers.yml"))...)
	p := openConsole(t, g)
	p.forgive = "401 (Unauthorized)"
	p.shows("The request proves no right to be here", "This port wants a token")
	enter := func(token string) {
		t.Helper()
		if err := chromedp.Do(p.ctx, chromedp.SendKeys("#token", token+"\r")); err != nil {
			t.Fatal(err)
		}
	}
	enter(opsToken)
	p.shows("Nothing is held back.", "publish 100 %", "Live: each change appears as it comes.", "max_connections")
}
