package game

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// TestHostile: what isn't right is answered with what is wrong with it, and
// changes nothing.
func TestHostile(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada := r.join("Ada")
	stranger, err := (&Game{opts: r.opts}).token("p-nobody", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const asJSON = "application/json"
	for name, c := range map[string]struct {
		method, path, token, kind, body string
		want                            int
	}{
		"no name":             {"POST", "/join", "", asJSON, `{}`, 400},
		"a blank name":        {"POST", "/join", "", asJSON, `{"name":"  "}`, 400},
		"a long name":         {"POST", "/join", "", asJSON, `{"name":"` + strings.Repeat("a", 33) + `"}`, 400},
		"a line end":          {"POST", "/join", "", asJSON, `{"name":"a\nb"}`, 400},
		"no JSON":             {"POST", "/join", "", asJSON, `name=Ada`, 400},
		"another member":      {"POST", "/join", "", asJSON, `{"name":"Ada","player":"p-1"}`, 400},
		"a form":              {"POST", "/join", "", "application/x-www-form-urlencoded", `{"name":"Ada"}`, 415},
		"text":                {"POST", "/solve", ada.Token, "text/plain", `{"challenge":1,"answer":"A1"}`, 415},
		"a huge body":         {"POST", "/join", "", asJSON, `{"name":"` + strings.Repeat("a", 1<<20) + `"}`, 400},
		"no token":            {"POST", "/solve", "", asJSON, `{"challenge":1,"answer":"A1"}`, 401},
		"a bad token":         {"GET", "/me", "a.b.c", "", ``, 401},
		"a stranger's answer": {"POST", "/solve", stranger, asJSON, `{"challenge":1,"answer":"` + rightFor(r, "p-nobody") + `"}`, 401},
		"a stranger's state":  {"GET", "/me", stranger, "", ``, 401},
		"challenge 0":         {"POST", "/solve", ada.Token, asJSON, `{"challenge":0,"answer":"A1"}`, 400},
		"challenge -1":        {"POST", "/solve", ada.Token, asJSON, `{"challenge":-1,"answer":"A1"}`, 400},
		"a huge challenge":    {"POST", "/solve", ada.Token, asJSON, `{"challenge":1e300,"answer":"A1"}`, 400},
		"another method":      {"DELETE", "/me", ada.Token, "", ``, 405},
		"another path":        {"GET", "/../rules.go", "", "", ``, 404},
		"no such file":        {"GET", "/lua/join.lua", "", "", ``, 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, r.url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		req.Header.Set("Content-Type", c.kind)
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
	if me := r.me(ada.Token); me.Solved != 0 || me.Total != 0 {
		t.Errorf("something has counted: %+v", me)
	}
}

// rightFor is the right answer to somebody's first challenge.
func rightFor(r *rig, player string) string {
	c := r.rules().challenge(player, 1)
	return Answer(c.Map, c.Side)
}

// TestOptions: what can't work is said before anything is started, and no
// password with it.
func TestOptions(t *testing.T) {
	t.Parallel()
	good := Options{
		Redis: "redis://127.0.0.1:1", Name: "test", Side: 16, Top: 20, BoardEvery: 1e9, OutboxMax: 10, ActiveFor: 1, Patience: 1e9,
		Backends: []string{"http://b"}, Events: []string{"http://e"}, Secret: []byte(secret), TokenLife: 1,
	}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, break_ := range map[string]func(*Options){
		"name":      func(o *Options) { o.Name = "" },
		"side":      func(o *Options) { o.Side = 65 },
		"board":     func(o *Options) { o.Top = 0 },
		"every":     func(o *Options) { o.BoardEvery = 0 },
		"outbox":    func(o *Options) { o.OutboxMax = 1 },
		"time":      func(o *Options) { o.ActiveFor = 0 },
		"tries":     func(o *Options) { o.Patience = 0 },
		"Downlink":  func(o *Options) { o.Backends = nil },
		"isn't one": func(o *Options) { o.Backends = []string{"ftp://u:hidden@b"} },
		"http://":   func(o *Options) { o.Events = []string{"http://e", "http://e; script-src *"} },
		"secret":    func(o *Options) { o.Secret = []byte("short") },
		"Redis":     func(o *Options) { o.Redis = "redis://u:hidden@:bad:port" },
	} {
		o := good
		break_(&o)
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
