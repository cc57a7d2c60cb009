package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.client.URL += "/base/?group=south"
		g.client.Device = "매장-12 & co"
		g.client.Token = "t0ken"
		play(t, g, &device{store: &MemoryStore{Cursor{ID: "5-0", Groups: "g1"}}}, time.Second, nil)
		r := g.requests[0]
		wantEqual(t, "path", r.URL.Path, "/base/events")
		wantEqual(t, "query", map[string][]string(r.URL.Query()), map[string][]string{"device": {"매장-12 & co"}, "group": {"south"}})
		for name, want := range map[string]string{
			"Accept": "text/event-stream", "Cache-Control": "no-cache", "Authorization": "Bearer t0ken", "Last-Event-ID": "5-0",
			"Downlink-Groups": "g1", "Downlink-Client": "go/" + Version, "Accept-Encoding": "identity",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

// TestEarliest: it is for a device without a cursor. With one it would repeat.
func TestEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, sends(": no cursor yet\n\n"), sends("id: 1-0\ndata: a\n\n"))
		g.client.Earliest = true
		play(t, g, &device{}, time.Minute, nil)
		var from []string
		for _, r := range g.requests {
			from = append(from, r.URL.Query().Get("from"))
		}
		wantEqual(t, "from", from, []string{"earliest", "earliest", ""})
	})
}

// TestDamagedCursor: the gateway must hear that there was one, or it might
// begin somewhere in silence.
func TestDamagedCursor(t *testing.T) {
	for _, id := range []string{"\x00\x00", "5-0\r\nX: y", "a\x7f"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t)
			g.client.Earliest = true
			play(t, g, &device{store: &MemoryStore{Cursor{ID: id, Groups: id}}}, time.Second, nil)
			r := g.requests[0]
			if got := r.Header.Get("Last-Event-ID") + r.Header.Get("Downlink-Groups") + r.URL.Query().Get("from"); got != "unreadableunreadable" {
				t.Errorf("cursor %q: sent %q", id, got)
			}
		})
	}
}

func TestRedirectKeepsSecretsHome(t *testing.T) {
	seen := make(chan *http.Request, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.WriteHeader(http.StatusNoContent)
	}))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	home := httptest.NewServer(http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	defer home.Close()
	c := Client{URL: home.URL, Token: "t0ken", Cursors: &MemoryStore{Cursor{ID: "5-0"}}}
	_ = c.Run(t.Context(), Handler{Event: func(context.Context, Event) error { return nil }})
	r := <-seen
	if got := r.Header.Get("Authorization"); got != "" {
		t.Errorf("another host got the token: %q", got)
	}
	if got := r.Header.Get("Last-Event-ID"); got != "5-0" {
		t.Errorf("the cursor got lost on the way: %q", got)
	}
}

func TestRedirectRules(t *testing.T) {
	request := func(url string) *http.Request { return httptest.NewRequest(http.MethodGet, url, nil) }
	via := []*http.Request{request("https://a.example/events")}
	if err := checkRedirect(request("https://b.example/events"), via); err != nil {
		t.Errorf("https to https: %v", err)
	}
	if err := checkRedirect(request("http://a.example/events"), via); err == nil {
		t.Error("https to http was followed")
	}
	if err := checkRedirect(request("https://a.example/events"), make([]*http.Request, 10)); err == nil {
		t.Error("an eleventh redirect was followed")
	}
}

// TestHTTP2 runs over real sockets and TLS; a silent connection must not be used
// again, although HTTP/2 would like to.
func TestHTTP2(t *testing.T) {
	var mu sync.Mutex
	var addrs []string // of each request
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("protocol %s", r.Proto)
		}
		mu.Lock()
		addrs = append(addrs, r.RemoteAddr)
		mu.Unlock()
		if r.Header.Get("Last-Event-ID") == "" {
			holds("retry: 100\n\nid: 1-0\ndata: a\n\n")(w, r)
			return
		}
		holds("id: 2-0\ndata: b\n\n")(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := Client{URL: server.URL, HTTPClient: server.Client(), Silence: 300 * time.Millisecond}
	var seen []string
	_ = c.Run(ctx, Handler{Event: func(_ context.Context, e Event) error {
		if seen = append(seen, e.Data); e.Data == "b" {
			cancel()
		}
		return nil
	}})
	wantEqual(t, "events", seen, []string{"a", "b"})
	mu.Lock()
	defer mu.Unlock()
	// More than two, if the machine was as silent.
	if len(addrs) < 2 || len(slices.Compact(slices.Sorted(slices.Values(addrs)))) != len(addrs) {
		t.Errorf("connections from %v, want different ones", addrs)
	}
}
