package testkit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"downlink/client"
	"downlink/internal/event"
)

// Dialled are devices that gateways dial, in this process and on loopback: they
// serve WebSockets and take POSTs, hold a cursor and the highest generation, and
// write down every call and event. What they finish goes into a ledger. They are
// written from docs/protocol.md alone, apart from the client package. Unlike a
// good device they don't close a connection whose place another has taken, so
// that it shows whether anything more is sent over it.
type Dialled struct {
	tb      testing.TB
	ledger  *Ledger
	server  *http.Server
	base    string // URL
	devices []*dialledDevice
	byName  map[string]*dialledDevice
	reading sync.WaitGroup
	ctx     context.Context
}

type dialledDevice struct {
	ledger *Ledger
	index  int
	name   string

	mu      sync.Mutex
	calls   []*Call
	current *Call // accepted last; over a WebSocket
	highest uint64
	cursor  string
	groups  string
	begun   bool

	repeatable bool // events may come again: by POST, or from two members
	repeats    int
}

// A Call is one WebSocket that a gateway opened to a device, or one POST.
type Call struct {
	Member     string
	Generation uint64
	Post       bool
	Refused    bool      // of an owner of the past
	Came, Left time.Time // Left is zero while it is open
	Sent       []Sent    // events and resyncs that came over it, taken or not
	Renewed    []Renewed // generations that it went on under
}

// Sent is an event or a resync that a gateway sent.
type Sent struct {
	At time.Time
	ID string
}

// Renewed is a moment from which a connection had another generation.
type Renewed struct {
	At         time.Time
	Generation uint64
}

// ServeDialled serves the devices of a ledger until the test ends.
func ServeDialled(tb testing.TB, ledger *Ledger) *Dialled {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	d := &Dialled{tb: tb, ledger: ledger, base: "http://" + listener.Addr().String(), byName: make(map[string]*dialledDevice)}
	for i, name := range ledger.names {
		one := &dialledDevice{ledger: ledger, index: i, name: name}
		d.devices = append(d.devices, one)
		d.byName[name] = one
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.ctx = ctx
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: patience}
	var serving sync.WaitGroup
	serving.Go(func() { _ = d.server.Serve(listener) })
	tb.Cleanup(func() {
		cancel()
		_ = d.server.Close()
		serving.Wait()
		d.reading.Wait()
	})
	return d
}

// Inventory writes a file of the devices with URLs of the given scheme (ws or
// http), and returns its name.
func (d *Dialled) Inventory(scheme string) string {
	d.tb.Helper()
	var text strings.Builder
	text.WriteString("id,url\n")
	for _, one := range d.devices {
		fmt.Fprintf(&text, "%s,%s\n", one.name, d.URL(scheme, one.name))
	}
	path := filepath.Join(d.tb.TempDir(), "devices.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		d.tb.Fatal(err)
	}
	return path
}

// URL is a device's own.
func (d *Dialled) URL(scheme, name string) string {
	return scheme + strings.TrimPrefix(d.base, "http") + "/" + url.PathEscape(name)
}

// ServeHTTP implements http.Handler.
func (d *Dialled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one := d.byName[strings.TrimPrefix(r.URL.Path, "/")]
	if one == nil || r.Header.Get("Downlink-Device") != one.name {
		d.ledger.fault("%s %s is for device %q", r.Method, r.URL.Path, r.Header.Get("Downlink-Device"))
		http.NotFound(w, r)
		return
	}
	call := &Call{Member: r.Header.Get("Downlink-Member"), Came: time.Now(), Post: r.Method == http.MethodPost}
	if text := r.Header.Get("Downlink-Generation"); text != "" {
		var err error
		if call.Generation, err = strconv.ParseUint(text, 10, 64); err != nil {
			d.ledger.fault("%s: generation %q", one.name, text)
		}
	}
	if call.Post {
		one.post(w, r, call)
		return
	}
	d.reading.Add(1)
	defer d.reading.Done()
	one.websocket(d.ctx, w, r, call)
}

// accept notes a call, and reports whether the device takes it.
func (one *dialledDevice) accept(call *Call) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.calls = append(one.calls, call)
	one.repeatable = one.repeatable || call.Generation == 0
	call.Refused = call.Generation > 0 && call.Generation < one.highest
	if !call.Refused {
		one.highest = max(one.highest, call.Generation)
		if !call.Post {
			one.current = call
		}
	}
	return !call.Refused
}

// A dialledMessage is what a gateway sends over a WebSocket.
type dialledMessage struct {
	Welcome *struct {
		Generation uint64
		Groups     string
	}
	Generation     uint64
	ID, Type, Data string
}

func (one *dialledDevice) websocket(ctx context.Context, w http.ResponseWriter, r *http.Request, call *Call) {
	if !one.accept(call) {
		http.Error(w, "there was a newer owner", http.StatusConflict)
		return
	}
	defer one.leave(call)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"downlink.v1"}})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(8 << 20)
	if err := conn.Write(ctx, websocket.MessageText, one.hello()); err != nil {
		return
	}
	for welcomed := false; ; {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var m dialledMessage
		if err := json.Unmarshal(text, &m); err != nil {
			one.ledger.fault("%s: a message %q", one.name, text)
			return
		}
		if !welcomed && m.Welcome == nil || m.Welcome != nil && m.Welcome.Generation != call.Generation {
			one.ledger.fault("%s: begins with %q under generation %d", one.name, text, call.Generation)
		}
		welcomed = true
		one.message(call, m)
	}
}

func (one *dialledDevice) hello() []byte {
	one.mu.Lock()
	defer one.mu.Unlock()
	text, err := json.Marshal(map[string]any{"hello": map[string]string{"cursor": one.cursor, "groups": one.groups}})
	if err != nil {
		panic(err) // texts don't fail
	}
	return text
}

func (one *dialledDevice) leave(call *Call) {
	one.mu.Lock()
	defer one.mu.Unlock()
	call.Left = time.Now()
}

// message takes a message, if its connection is the last that was accepted.
func (one *dialledDevice) message(call *Call, m dialledMessage) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if m.ID != "" && m.Type != "" {
		call.Sent = append(call.Sent, Sent{time.Now(), m.ID})
	}
	if call.Generation > 0 && (one.current != call || call.generation(time.Now()) < one.highest) {
		return // its place was taken; members without generations send side by side
	}
	switch {
	case m.Welcome != nil:
		one.groups = m.Welcome.Groups
	case m.Generation > 0:
		call.Renewed = append(call.Renewed, Renewed{time.Now(), m.Generation})
		one.highest = max(one.highest, m.Generation)
	case m.ID != "" && m.Type == "":
		if after(m.ID, one.cursor) { // of two members one may be behind
			one.cursor = m.ID
		}
	case m.ID != "":
		one.takeLocked(client.Event{ID: m.ID, Type: m.Type, Data: m.Data})
	}
}

// takeLocked finishes an event or a resync and commits it, unless it was
// finished before. Only where that is allowed a repeat doesn't go to the ledger,
// which would object.
func (one *dialledDevice) takeLocked(e client.Event) {
	if one.repeatable && e.Type != event.ResyncType && !after(e.ID, one.cursor) {
		one.repeats++
		return
	}
	if e.Type == event.ResyncType {
		var told struct{ Reason string }
		if err := json.Unmarshal([]byte(e.Data), &told); err != nil {
			one.ledger.fault("%s: a resync %q", one.name, e.Data)
		}
		one.ledger.resynced(one.index, client.Resync{ID: e.ID, Reason: told.Reason}, !one.begun)
		one.begun = true
	} else {
		one.ledger.finish(one.index, e)
	}
	one.cursor = e.ID
}

func (one *dialledDevice) post(w http.ResponseWriter, r *http.Request, call *Call) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway's end has gone
	}
	e := client.Event{ID: r.Header.Get("Downlink-Id"), Type: r.Header.Get("Downlink-Event"), Data: string(body)}
	call.Sent = []Sent{{call.Came, e.ID}}
	ok := one.accept(call)
	one.mu.Lock()
	defer one.mu.Unlock()
	call.Left = time.Now()
	switch {
	case !ok:
		http.Error(w, "there was a newer owner", http.StatusConflict)
		return
	default:
		one.repeatable = true // its answer may have been lost
		one.takeLocked(e)
	}
	w.WriteHeader(http.StatusNoContent)
}

// after reports whether an ID is above a cursor, which may be empty.
func after(id, cursor string) bool {
	i, errID := event.ParseID(id)
	c, err := event.ParseID(cursor)
	return errID != nil || err != nil || c.Less(i)
}

// Connected is how many devices have a WebSocket that is open and that nothing
// has taken the place of.
func (d *Dialled) Connected() (n int) {
	for _, owner := range d.Owners() {
		if owner != "" {
			n++
		}
	}
	return n
}

// Owners are the members that the devices' open WebSockets come from, or empty.
func (d *Dialled) Owners() []string {
	owners := make([]string, len(d.devices))
	for i, one := range d.devices {
		one.mu.Lock()
		if one.current != nil && one.current.Left.IsZero() {
			owners[i] = one.current.Member
		}
		one.mu.Unlock()
	}
	return owners
}

// Calls are all calls so far, by device.
func (d *Dialled) Calls() [][]Call {
	all := make([][]Call, len(d.devices))
	for i, one := range d.devices {
		one.mu.Lock()
		for _, c := range one.calls {
			c := *c
			c.Sent, c.Renewed = slices.Clone(c.Sent), slices.Clone(c.Renewed)
			all[i] = append(all[i], c)
		}
		one.mu.Unlock()
	}
	return all
}

// Repeats is how many events came that the device had finished, where that is
// allowed.
func (d *Dialled) Repeats() (n int) {
	for _, one := range d.devices {
		one.mu.Lock()
		n += one.repeats
		one.mu.Unlock()
	}
	return n
}
