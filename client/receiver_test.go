package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// A served is a device under test, and what its handler was called for.
type served struct {
	*testing.T
	*Receiver
	http *http.Client
	url  string

	mu    sync.Mutex
	log   []string
	fails int           // how many calls of the handler fail next
	block chan struct{} // an event of type "block" waits for it
}

func serveDevice(t *testing.T, o ReceiverOptions) *served {
	d := &served{T: t, block: make(chan struct{})}
	var err error
	d.Receiver, err = NewReceiver(o, Handler{
		Event: func(ctx context.Context, e Event) error {
			if e.Type == "block" {
				select {
				case <-d.block:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return d.note(strings.Join([]string{e.ID, e.Type, e.Data, SenderOf(ctx).Member, strconv.FormatUint(SenderOf(ctx).Generation, 10)}, " "))
		},
		Resync: func(_ context.Context, r Resync) error { return d.note("resync " + r.ID + " " + r.Reason) },
		Status: func(s Status) {
			if s.Err != nil {
				t.Logf("status: %v", s.Err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := newPipeListener()
	server := &http.Server{Handler: d.Receiver}
	go func() { _ = server.Serve(l) }()
	d.url = "http://device.test/"
	d.http = &http.Client{Transport: &http.Transport{DialContext: l.dial}}
	t.Cleanup(func() {
		if err := d.Receiver.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		_ = server.Close()
		d.http.CloseIdleConnections()
		pass(time.Second) // for which the server keeps a connection that it has refused to read
	})
	return d
}

func (d *served) note(line string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails > 0 {
		d.fails--
		return errors.New("not now")
	}
	d.log = append(d.log, line)
	return nil
}

func (d *served) want(lines ...string) {
	d.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(lines, d.log); diff != "" {
		d.Errorf("the device handled (-want +got):\n%s", diff)
	}
	d.log = nil
}

// A dialled is the gateway's end of a WebSocket.
type dialled struct {
	*testing.T
	conn *websocket.Conn
}

func owner(member string, generation uint64) http.Header {
	h := http.Header{"Downlink-Member": {member}}
	if generation > 0 {
		h.Set("Downlink-Generation", strconv.FormatUint(generation, 10))
	}
	return h
}

// dial connects, reads the hello and compares it.
func (d *served) dial(h http.Header, hello string) *dialled {
	d.Helper()
	g, resp := d.try(h)
	if g == nil {
		d.Fatalf("the device answered %v", resp)
	}
	g.wantMessage(hello)
	return g
}

func (d *served) try(h http.Header) (*dialled, *http.Response) {
	conn, resp, err := websocket.Dial(d.Context(), d.url, &websocket.DialOptions{HTTPClient: d.http, HTTPHeader: h, Subprotocols: []string{"downlink.v1"}})
	if err != nil {
		return nil, resp
	}
	d.Cleanup(func() { _ = conn.CloseNow() })
	return &dialled{d.T, conn}, resp
}

func (g *dialled) send(messages ...string) {
	g.Helper()
	for _, m := range messages {
		if err := g.conn.Write(g.Context(), websocket.MessageText, []byte(m)); err != nil {
			g.Fatalf("sending %s: %v", m, err)
		}
	}
}

func (g *dialled) wantMessage(want string) {
	g.Helper()
	_, text, err := g.conn.Read(g.Context())
	if err != nil || string(text) != want {
		g.Fatalf("the device says %s, %v; want %s", text, err, want)
	}
}

// wantEnd reads to the end and compares the code; -1 is an end without one.
func (g *dialled) wantEnd(code websocket.StatusCode) {
	g.Helper()
	for {
		_, _, err := g.conn.Read(g.Context())
		if err == nil {
			continue
		}
		if got := websocket.CloseStatus(err); got != code {
			g.Errorf("the device closed with %d (%v), want %d", got, err, code)
		}
		return
	}
}

const welcomed = `{"welcome":{"generation":0,"member":"m","groups":"g1","keepalive_ms":20000,"more":1}}`

func frameOf(id, typ, data string) string {
	m := map[string]string{"id": id}
	if typ != "" {
		m["type"], m["data"] = typ, data
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestReceiverResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{}
		d := serveDevice(t, ReceiverOptions{Cursors: store})
		g := d.dial(owner("a", 5), `{"hello":{}}`)
		g.send(welcomed, `{"unknown":1}`, frameOf("1-0", "order", "x"), frameOf("2-0", "order", ""), frameOf("3-0", "", ""))
		d.want("1-0 order x a 5", "2-0 order  a 5")
		_ = g.conn.Close(websocket.StatusGoingAway, "")
		synctest.Wait()

		again := d.dial(owner("b", 6), `{"hello":{"cursor":"3-0","groups":"g1"}}`)
		again.send(welcomed, frameOf("2-0", "order", "again"), frameOf("4-0", "order", "y"))
		d.want("4-0 order y b 6")
		if want := (Cursor{ID: "4-0", Groups: "g1", Generation: 6}); store.Cursor != want {
			t.Errorf("kept is %+v, want %+v", store.Cursor, want)
		}
	})
}

// TestOwnersOfThePast: what they send counts no more, from the moment that
// another one has come.
func TestOwnersOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := &FileStore{Path: filepath.Join(t.TempDir(), "cursor")}
		d := serveDevice(t, ReceiverOptions{Cursors: file})
		old := d.dial(owner("a", 5), `{"hello":{}}`)
		old.send(welcomed, frameOf("1-0", "block", "x"), frameOf("2-0", "order", "late"))
		synctest.Wait()

		g, resp := d.try(owner("z", 4))
		if g != nil || resp.StatusCode != http.StatusConflict || resp.Header.Get("Downlink-Generation") != "5" {
			t.Errorf("generation 4 after 5: %v", resp)
		}
		began := time.Now()
		var newer *dialled
		done := make(chan struct{})
		go func() {
			defer close(done)
			newer, _ = d.try(owner("b", 7))
			newer.wantMessage(`{"hello":{"cursor":"1-0","groups":"g1"}}`) // what was under way was finished first
		}()
		pass(time.Second)
		close(d.block)
		<-done
		if took := time.Since(began); took != time.Second {
			t.Errorf("the hello came after %v, the handler took a second", took)
		}
		old.wantEnd(-1)
		newer.send(welcomed, frameOf("2-0", "order", "y"))
		d.want("1-0 block x a 5", "2-0 order y b 7")

		same := d.dial(owner("b", 7), `{"hello":{"cursor":"2-0","groups":"g1"}}`)
		newer.wantEnd(-1)
		same.send(welcomed, `{"generation":9}`, frameOf("3-0", "order", "z"))
		d.want("3-0 order z b 9")
		same.send(`{"generation":8}`)
		same.wantEnd(codeNewerOwner)
		if c, err := file.Load(); err != nil || c.Generation != 9 {
			t.Errorf("kept is %+v, %v", c, err)
		}
		restarted := serveDevice(t, ReceiverOptions{Cursors: file})
		if g, resp := restarted.try(owner("b", 8)); g != nil {
			t.Errorf("after a restart generation 8 was taken after 9: %v", resp)
		}
	})
}

// TestGatewaysSideBySide: without generations both may send; each event counts once.
func TestGatewaysSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveDevice(t, ReceiverOptions{})
		a := d.dial(owner("a", 0), `{"hello":{}}`)
		b, nameless := d.dial(http.Header{}, `{"hello":{}}`), d.dial(http.Header{}, `{"hello":{}}`)
		a.send(welcomed, frameOf("1-0", "order", "x"))
		d.want("1-0 order x a 0")
		b.send(welcomed, frameOf("1-0", "order", "x"), frameOf("2-0", "order", "y"))
		d.want("2-0 order y  0")
		a.send(frameOf("2-0", "order", "y"), frameOf("3-0", "order", "z"))
		d.want("3-0 order z a 0")
		again := d.dial(owner("a", 0), `{"hello":{"cursor":"3-0","groups":"g1"}}`)
		a.wantEnd(-1)
		again.send(welcomed)
		b.send(frameOf("4-0", "order", "w"))
		d.want("4-0 order w  0")
		nameless.send(welcomed, frameOf("5-0", "order", "v"))
		d.want("5-0 order v  0")
	})
}

func TestReceiverResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{Cursor: Cursor{ID: "9-0"}}
		d := serveDevice(t, ReceiverOptions{Cursors: store})
		g := d.dial(owner("a", 1), `{"hello":{"cursor":"9-0"}}`)
		d.fails = 1
		g.send(welcomed, frameOf("5-0", "resync", `{"reason":"log-rewound","after_ms":90000}`), frameOf("6-0", "order", "x"))
		for range 4 { // the device's wait is no silence: it answers while it waits
			pass(20 * time.Second)
			if err := g.ping(); err != nil {
				t.Fatalf("a ping while the device waits: %v", err)
			}
		}
		d.want([]string(nil)...)
		pass(11 * time.Second) // and one failure of the handler
		d.want("resync 5-0 log-rewound", "6-0 order x a 1")
		if store.Cursor.ID != "6-0" {
			t.Errorf("the cursor is %s", store.Cursor.ID)
		}
	})
}

// ping sends a ping and waits for the answer, which takes somebody who reads.
func (g *dialled) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	read, stop := context.WithCancel(context.Background())
	go func() { // ends with the connection: a read that is cancelled breaks it
		_, _, _ = g.conn.Read(read)
		stop()
	}()
	return g.conn.Ping(ctx)
}

func TestHandlerFailsOverWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveDevice(t, ReceiverOptions{})
		d.fails = 1
		g := d.dial(owner("a", 1), `{"hello":{}}`)
		g.send(welcomed, frameOf("1-0", "order", "x"), frameOf("2-0", "order", "y"))
		g.wantEnd(websocket.StatusInternalError)
		d.want([]string(nil)...)
		g = d.dial(owner("a", 1), `{"hello":{}}`)
		g.send(welcomed, frameOf("1-0", "order", "x"))
		d.want("1-0 order x a 1")
	})
}

func TestSilentGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveDevice(t, ReceiverOptions{})
		g := d.dial(owner("a", 1), `{"hello":{}}`)
		g.send(`{"welcome":{"keepalive_ms":1000}}`)
		for range 5 {
			pass(2900 * time.Millisecond)
			g.send(`{"x":1}`)
		}
		began := time.Now()
		g.wantEnd(-1)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("a silent gateway was left after %v, want three keep-alives of a second", took)
		}
	})
}

func TestGatewaysThatBreakTheProtocol(t *testing.T) {
	for name, c := range map[string]struct {
		messages []string
		kind     websocket.MessageType
		code     websocket.StatusCode
	}{
		"no JSON":               {[]string{"x"}, websocket.MessageText, websocket.StatusProtocolError},
		"an array":              {[]string{"[]"}, websocket.MessageText, websocket.StatusProtocolError},
		"an event first":        {[]string{frameOf("1-0", "t", "")}, websocket.MessageText, websocket.StatusProtocolError},
		"binary":                {[]string{welcomed}, websocket.MessageBinary, websocket.StatusProtocolError},
		"a welcome of the past": {[]string{`{"welcome":{"generation":2}}`}, websocket.MessageText, codeNewerOwner},
		"an event too large":    {[]string{welcomed, frameOf("1-0", "t", strings.Repeat("x", 101))}, websocket.MessageText, websocket.StatusMessageTooBig},
		"a message too large":   {[]string{welcomed, frameOf("1-0", "t", strings.Repeat("x", 5000))}, websocket.MessageText, websocket.StatusMessageTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := serveDevice(t, ReceiverOptions{MaxEventBytes: 100})
				g := d.dial(owner("a", 3), `{"hello":{}}`)
				for _, m := range c.messages {
					if err := g.conn.Write(t.Context(), c.kind, []byte(m)); err != nil {
						t.Fatal(err)
					}
				}
				g.wantEnd(c.code)
				d.want([]string(nil)...)
			})
		})
	}
}

func TestCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveDevice(t, ReceiverOptions{Commits: true, Earliest: true})
		g := d.dial(owner("a", 1), `{"hello":{"from":"earliest"}}`)
		g.send(welcomed, frameOf("1-0", "block", "x"))
		synctest.Wait()
		for i := range 10 {
			g.send(frameOf(strconv.Itoa(2+i)+"-0", "t", ""))
		}
		synctest.Wait()
		close(d.block)
		g.wantMessage(`{"commit":"1-0"}`)
		g.wantMessage(`{"commit":"11-0"}`)
		g.send(frameOf("12-0", "", ""))
		g.wantMessage(`{"commit":"12-0"}`)
	})
}

func (d *served) post(h http.Header, body string, more ...string) *http.Response {
	d.Helper()
	req, err := http.NewRequestWithContext(d.Context(), http.MethodPost, d.url, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	req.Header = h.Clone()
	for i := 0; i+1 < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := d.http.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

func (d *served) wantPost(code int, h http.Header, body string, more ...string) *http.Response {
	d.Helper()
	resp := d.post(h, body, more...)
	if resp.StatusCode != code {
		d.Errorf("POST of %q with %v: %d, want %d", body, more, resp.StatusCode, code)
	}
	return resp
}

func TestPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{}
		d := serveDevice(t, ReceiverOptions{Cursors: store, MaxEventBytes: 100})
		a := owner("a", 5)
		event := func(id string) []string { return []string{"Downlink-Id", id, "Downlink-Event", "order.%C3%A9"} }
		d.wantPost(204, a, "x", event("1-0")...)
		d.wantPost(204, a, "x", event("1-0")...)
		d.want("1-0 order.é x a 5")
		d.fails = 1
		d.wantPost(500, a, "y", event("2-0")...)
		d.wantPost(204, a, "y", event("2-0")...)
		d.want("2-0 order.é y a 5")
		d.wantPost(413, a, strings.Repeat("x", 101), event("3-0")...)
		if resp := d.wantPost(409, owner("z", 4), "z", event("3-0")...); resp.Header.Get("Downlink-Generation") != "5" {
			t.Errorf("the refusal names generation %q", resp.Header.Get("Downlink-Generation"))
		}
		for _, bad := range []string{"0", "-1", "05", "x", "18446744073709551616"} {
			d.wantPost(400, a, "z", append(event("3-0"), "Downlink-Generation", bad)...)
		}
		d.want([]string(nil)...)

		g := d.dial(owner("b", 6), `{"hello":{"cursor":"2-0"}}`)
		g.send(welcomed)
		d.wantPost(409, a, "z", event("3-0")...)
		d.wantPost(204, owner("c", 7), "z", event("3-0")...)
		g.wantEnd(-1)
		d.want("3-0 order.é z c 7")
		if want := (Cursor{ID: "3-0", Groups: "", Generation: 7}); store.Cursor != want {
			t.Errorf("kept is %+v, want %+v", store.Cursor, want)
		}
	})
}

// TestPostedResync: the gateway asks again and again; the wait is counted from
// the first time.
func TestPostedResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{Cursor: Cursor{ID: "9-0"}}
		d := serveDevice(t, ReceiverOptions{Cursors: store})
		resync := func(code int, after string) {
			t.Helper()
			resp := d.wantPost(code, owner("a", 1), `{"reason":"log-rewound","after_ms":2500}`, "Downlink-Id", "5-0", "Downlink-Event", "resync")
			if got := resp.Header.Get("Retry-After"); got != after {
				t.Errorf("Retry-After is %q, want %q", got, after)
			}
		}
		resync(503, "3")
		pass(1600 * time.Millisecond)
		resync(503, "1")
		pass(900 * time.Millisecond)
		d.fails = 1
		resync(500, "")
		d.want([]string(nil)...)
		resync(204, "")
		d.want("resync 5-0 log-rewound")
		if store.Cursor.ID != "5-0" {
			t.Errorf("the cursor is %s", store.Cursor.ID)
		}
	})
}

// TestPushed: events without an ID are known by their key.
func TestPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveDevice(t, ReceiverOptions{})
		push := func(code int, key, body string) {
			t.Helper()
			d.wantPost(code, http.Header{}, body, "Idempotency-Key", key)
		}
		d.fails = 1
		push(500, "k", "x")
		push(204, "k", "x")
		push(204, "k", "x")
		push(204, "", "y")
		push(204, "", "y")
		d.want(" message x  0", " message y  0", " message y  0")
		for i := range recentKeys {
			push(204, "key-"+strconv.Itoa(i), "")
		}
		d.log = nil
		push(204, "key-0", "z")
		push(204, "k", "z") // forgotten
		d.want(" message z  0")
		if n := len(d.keys.known); n != recentKeys || len(d.keys.order) != recentKeys {
			t.Errorf("%d keys are remembered", n)
		}
	})
}

func TestWhoMayDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveDevice(t, ReceiverOptions{Device: "pos-1", Token: "s3cret"})
		good := http.Header{"Downlink-Device": {"pos-1"}, "Authorization": {"Bearer s3cret"}}
		d.wantPost(204, good, "")
		d.wantPost(401, good, "", "Authorization", "Bearer other")
		d.wantPost(401, good, "", "Authorization", "s3cret")
		d.wantPost(401, http.Header{}, "")
		d.wantPost(421, good, "", "Downlink-Device", "pos-2")
		d.dial(good, `{"hello":{}}`)
		if g, resp := d.try(http.Header{"Downlink-Device": {"pos-1"}}); g != nil || resp.StatusCode != 401 {
			t.Errorf("a WebSocket without a credential: %v", resp)
		}
		if conn, resp, err := websocket.Dial(t.Context(), d.url, &websocket.DialOptions{HTTPClient: d.http, HTTPHeader: good}); err == nil || resp.StatusCode != 400 {
			t.Errorf("a WebSocket without our subprotocol: %v %v", conn, resp)
		}
		resp, err := d.http.Do(must(http.NewRequestWithContext(t.Context(), http.MethodPut, d.url, nil)))
		if err != nil || resp.StatusCode != 401 {
			t.Errorf("PUT: %v, %v", resp, err)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestReceiverCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{}
		d := serveDevice(t, ReceiverOptions{Cursors: store})
		g := d.dial(owner("a", 1), `{"hello":{}}`)
		g.send(welcomed, frameOf("1-0", "order", ""), frameOf("2-0", "", ""), frameOf("3-0", "block", ""))
		synctest.Wait()
		if store.Cursor.ID != "1-0" {
			t.Errorf("saved is %s; positions needn't be", store.Cursor.ID)
		}
		if err := d.Receiver.Close(); err != nil {
			t.Error(err)
		}
		g.wantEnd(-1)
		if store.Cursor.ID != "2-0" {
			t.Errorf("saved is %s at the end", store.Cursor.ID)
		}
		d.wantPost(503, owner("a", 1), "", "Downlink-Id", "4-0")
	})
}

func TestNoReceiver(t *testing.T) {
	handler := Handler{Event: func(context.Context, Event) error { return nil }}
	if _, err := NewReceiver(ReceiverOptions{}, Handler{}); !errors.Is(err, errHandler) {
		t.Errorf("without a handler: %v", err)
	}
	if _, err := NewReceiver(ReceiverOptions{Token: "a\n"}, handler); !errors.Is(err, errToken) {
		t.Errorf("with a line end in the token: %v", err)
	}
	r, err := NewReceiver(ReceiverOptions{}, handler)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		if w.Code != http.StatusMethodNotAllowed || !slices.Contains(strings.Split(w.Header().Get("Allow"), ", "), "POST") {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
