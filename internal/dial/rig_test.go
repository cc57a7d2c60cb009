package dial

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/backoff"
	"downlink/internal/egress"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/inventory"
	"downlink/internal/lease"
	"downlink/internal/limits"
	"downlink/internal/session"
	"downlink/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// history is a log of one shard that forgets nothing.
type history struct {
	mu      sync.Mutex
	entries []eventlog.Entry
	reason  event.Reason // by which each question is answered
	kept    map[string]event.ID
	fence   uint64
	away    bool
	ask     func() // is called when positions are asked for; nil: nothing is
}

func (h *history) Range(_ context.Context, _ int, after, upTo event.ID, _ int) (eventlog.Page, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	page := eventlog.Page{Through: upTo}
	for _, e := range h.entries {
		if after.Less(e.ID) && !upTo.Less(e.ID) {
			page.Entries = append(page.Entries, e)
		}
	}
	return page, nil
}

func (h *history) Judge(_ context.Context, _ int, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Repeat([]event.Reason{h.reason}, len(questions)), eventlog.State{}, nil
}

func (h *history) Positions(_ context.Context, _ int, devices []string) (map[string]event.ID, error) {
	if h.ask != nil {
		h.ask()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return nil, eventlog.ErrUnavailable
	}
	found := make(map[string]event.ID)
	for _, d := range devices {
		if at, ok := h.kept[d]; ok {
			found[d] = at
		}
	}
	return found, nil
}

func (h *history) KeepPositions(_ context.Context, _ int, generation uint64, positions map[string]event.ID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.away:
		return eventlog.ErrUnavailable
	case generation < h.fence:
		return eventlog.ErrFenced
	}
	h.fence = generation
	for d, at := range positions {
		h.kept[d] = event.Max(h.kept[d], at)
	}
	return nil
}

func (h *history) position(device string) event.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept[device]
}

// listed is an inventory that a test writes.
type listed struct {
	mu      sync.Mutex
	devices map[string]inventory.Device
}

func (l *listed) Lookup(id string) (inventory.Device, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.devices[id]
	return d, ok
}

func (l *listed) Of(int) iter.Seq[inventory.Device] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Values(maps.Clone(l.devices))
}

// patience is far more than anything takes. It guards against hangs; no speed is
// judged by it.
const patience = time.Minute

// rig is an engine over one shard whose position is 1000-0.
type rig struct {
	t       *testing.T
	log     *history
	listed  *listed
	shards  *shard.Set
	metrics *Metrics
	engine  *Engine
	lease   atomic.Pointer[lease.Lease]
	revoked atomic.Bool
	outrank atomic.Uint64

	mu   sync.Mutex
	head event.ID
}

// newRig has an engine that runs and holds nothing.
func newRig(t *testing.T, transport Transport, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, log: &history{kept: make(map[string]event.ID)}, listed: &listed{devices: make(map[string]inventory.Device)}}
	r.head = event.ID{Ms: 1000}
	r.metrics = NewMetrics(prometheus.NewRegistry())
	r.shards = shard.NewSet(r.log, shard.Options{
		Shards: 1, HotBytes: limits.Always(1 << 20), PageBytes: 1 << 20, MaxLaps: 1,
		Pacer: shard.NewPacer(0), Metrics: shard.NewMetrics(nil),
	})
	r.shards.Start(0, r.head)
	way, err := egress.New(egress.Options{
		Schemes: []string{"ws"}, Allow: []string{"127.0.0.0/8"}, Metrics: egress.NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Transport: transport, Member: "member-1", Shards: 1, Devices: r.listed, Log: r.shards, Positions: r.log,
		Lease:     r.present,
		Revoked:   func(string) bool { return r.revoked.Load() },
		Outranked: func(_ int, g uint64) { r.outrank.Store(g) },
		Client:    way.Client,
		Session:   session.Options{MaxPending: limits.Always(100), MaxBytes: limits.Always(1 << 20)},
		Rate:      limits.Always(10_000), Sockets: limits.Always(1000), InFlight: limits.Always(8),
		Window: time.Minute, Keepalive: patience, WriteTimeout: patience, DialTimeout: patience,
		Backoff: backoff.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond},
		Metrics: r.metrics, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	r.engine = New(o)
	if transport == WebSocket {
		r.engine.grace = patience
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.engine.Run(ctx) })
	running.Go(func() { _ = r.shards.Run(ctx) })
	t.Cleanup(func() {
		r.let()
		cancel()
		running.Wait()
		way.Close()
	})
	return r
}

func (r *rig) present(int) (lease.Lease, bool) {
	if l := r.lease.Load(); l != nil {
		return *l, true
	}
	return lease.Lease{}, false
}

// take has the shard taken by a generation, for so long.
func (r *rig) take(generation uint64, ttl time.Duration) {
	l := lease.Lease{Owner: "member-1", Generation: generation, Deadline: time.Now().Add(ttl)}
	r.lease.Store(&l) // first, as whoever keeps leases does
	r.engine.Took(l)
}

// renew is the lease's, without a word to the engine.
func (r *rig) renew(ttl time.Duration) {
	l := *r.lease.Load()
	l.Deadline = time.Now().Add(ttl)
	r.lease.Store(&l)
}

func (r *rig) let() {
	r.lease.Store(nil)
	r.engine.Let(context.Background(), 0, lease.LossMoved)
}

// list has the inventory know a device, and the engine hear of it.
func (r *rig) list(id, url string) {
	d := inventory.Device{ID: id, URL: url}
	r.listed.mu.Lock()
	_, known := r.listed.devices[id]
	r.listed.devices[id] = d
	r.listed.mu.Unlock()
	if known {
		r.engine.Changed(inventory.Change{Changed: []inventory.Device{d}})
	} else {
		r.engine.Changed(inventory.Change{Added: []inventory.Device{d}})
	}
}

func (r *rig) publish(device, payload string) event.ID { return r.publishKeyed(device, "", payload) }

func (r *rig) publishKeyed(device, key, payload string) event.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head = r.head.Next()
	e := eventlog.Entry{ID: r.head, Event: event.Event{Target: device, Type: "t", Payload: payload, Key: key}}
	r.log.mu.Lock()
	r.log.entries = append(r.log.entries, e)
	r.log.mu.Unlock()
	r.shards.Dispatch(0, []eventlog.Entry{e})
	return r.head
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
		pause := time.NewTimer(time.Millisecond)
		<-pause.C
	}
}

func (r *rig) dials(result Result) float64 {
	return testutil.ToFloat64(r.metrics.dials.WithLabelValues(string(result)))
}

// device serves the dialled WebSocket as a test wishes.
type device struct {
	t      *testing.T
	server *httptest.Server
	pings  atomic.Int64

	mu     sync.Mutex
	hello  string        // what it says first; empty: nothing
	status int           // that it answers instead of a WebSocket
	header http.Header   // of the last request
	calls  []*deviceCall // in order
}

type deviceCall struct {
	ws   *websocket.Conn
	mu   sync.Mutex
	got  []string
	over error // why it ended; nil while it hasn't
}

func newDevice(t *testing.T, hello string) *device {
	d := &device{t: t, hello: hello}
	d.server = httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(d.server.Close)
	return d
}

func (d *device) url() string { return "ws" + strings.TrimPrefix(d.server.URL, "http") + "/events" }

func (d *device) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.header = r.Header.Clone()
	status, hello := d.status, d.hello
	d.mu.Unlock()
	if status != 0 {
		w.Header().Set(generationHeader, "77")
		w.WriteHeader(status)
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:   []string{Subprotocol},
		OnPingReceived: func(context.Context, []byte) bool { d.pings.Add(1); return true },
	})
	if err != nil {
		return // it was given up meanwhile
	}
	c := &deviceCall{ws: ws}
	d.mu.Lock()
	d.calls = append(d.calls, c)
	d.mu.Unlock()
	if hello != "" {
		_ = ws.Write(context.Background(), websocket.MessageText, []byte(hello))
	}
	for {
		_, text, err := ws.Read(context.Background())
		c.mu.Lock()
		if err != nil {
			c.over = err
			c.mu.Unlock()
			return
		}
		c.got = append(c.got, string(text))
		c.mu.Unlock()
	}
}

// call is the n-th call, from 0, as soon as there is one.
func (d *device) call(n int) *deviceCall {
	d.t.Helper()
	var c *deviceCall
	until(d.t, fmt.Sprintf("call %d", n), func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.calls) > n {
			c = d.calls[n]
		}
		return c != nil
	})
	return c
}

func (d *device) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// messages are what a call has got, once there are n.
func (c *deviceCall) messages(t *testing.T, n int) []string {
	t.Helper()
	var got []string
	until(t, fmt.Sprintf("%d messages", n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		got = slices.Clone(c.got)
		return len(got) >= n
	})
	return got
}

// end is how a call ended, once it has.
func (c *deviceCall) end(t *testing.T) error {
	t.Helper()
	var err error
	until(t, "the end of a call", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.over
		return err != nil
	})
	return err
}

func (c *deviceCall) say(t *testing.T, text string) {
	t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}
