package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A step answers one request. After the last step requests are held open.
type step func(w http.ResponseWriter, r *http.Request)

// stream begins an event stream and sends the text.
func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write([]byte(text)) // a client that has gone is the test's intent
	_ = http.NewResponseController(w).Flush()
}

// sends is a step that sends the text and ends the stream.
func sends(text string) step {
	return func(w http.ResponseWriter, _ *http.Request) { stream(w, text) }
}

// holds is a step that sends the text and then nothing.
func holds(text string) step {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(w, text)
		<-r.Context().Done()
	}
}

func answers(code int, header ...string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// A gateway is what the device under test talks to.
type gateway struct {
	client   *Client
	requests []*http.Request
	at       []time.Time
	steps    []step
}

func newGateway(t *testing.T, steps ...step) *gateway {
	g := &gateway{steps: steps}
	g.client = serve(t, func(w http.ResponseWriter, r *http.Request) {
		g.requests = append(g.requests, r)
		g.at = append(g.at, time.Now())
		if n := len(g.requests); n <= len(g.steps) {
			g.steps[n-1](w, r)
			return
		}
		holds("")(w, r)
	})
	g.client.Silence = 24 * time.Hour
	return g
}

// waits are the times between requests.
func (g *gateway) waits() (waits []time.Duration) {
	for i := 1; i < len(g.at); i++ {
		waits = append(waits, g.at[i].Sub(g.at[i-1]))
	}
	return waits
}

func (g *gateway) lastEventIDs() (ids []string) {
	for _, r := range g.requests {
		ids = append(ids, r.Header.Get("Last-Event-ID"))
	}
	return ids
}

// A device is what a test's handlers note.
type device struct {
	g      *gateway
	store  *MemoryStore
	seen   []string
	status []Status
	err    error // of Run, when it has ended
	cancel context.CancelFunc
}

// play runs the client until it ends or the (virtual) time is over. Events with
// "bad" in their data fail.
func play(t *testing.T, g *gateway, d *device, lasting time.Duration, resync func(context.Context, Resync) error) *device {
	t.Helper()
	d.g = g
	if d.store == nil {
		d.store = &MemoryStore{}
	}
	if g.client.Cursors == nil {
		g.client.Cursors = d.store
	}
	var ctx context.Context
	ctx, d.cancel = context.WithTimeout(t.Context(), lasting)
	defer d.cancel()
	d.err = g.client.Run(ctx, Handler{
		Event: func(_ context.Context, e Event) error {
			if strings.Contains(e.Data, "bad") {
				return errBad
			}
			d.seen = append(d.seen, e.ID+"="+e.Data)
			return nil
		},
		Resync: resync,
		Status: func(s Status) { d.status = append(d.status, s) },
	})
	synctest.Wait()
	return d
}

var errBad = errors.New("the printer is out of paper")

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantBetween(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want between %v and %v", what, got, least, most)
	}
}

// TestCommitAfterHandling is the promise: what a handler hasn't finished comes
// again, what it has finished doesn't.
func TestCommitAfterHandling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames = "id: 5-0\ndata: a\n\nid: 6-0\ndata: bad\n\nid: 7-0\ndata: c\n\n"
		g := newGateway(t, holds(frames), holds(strings.ReplaceAll(frames, "bad", "b")))
		d := play(t, g, &device{}, time.Minute, nil)
		if !errors.Is(d.err, errBad) || !strings.Contains(d.err.Error(), "6-0") {
			t.Errorf("Run: %v, want the handler's error with the event's ID", d.err)
		}
		wantEqual(t, "cursor", d.store.Cursor, Cursor{ID: "5-0"})

		play(t, g, d, time.Minute, nil)
		if !errors.Is(d.err, context.DeadlineExceeded) {
			t.Errorf("Run: %v, want the context's error", d.err)
		}
		wantEqual(t, "events", d.seen, []string{"5-0=a", "6-0=b", "7-0=c"})
		wantEqual(t, "cursors sent", g.lastEventIDs(), []string{"", "5-0"})
		wantEqual(t, "cursor", d.store.Cursor, Cursor{ID: "7-0"})
	})
}

// TestCommitWhileClosing: an event whose handler finished is committed even if
// the end came meanwhile.
func TestCommitWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, holds("id: 5-0\ndata: a\n\nid: 6-0\ndata: b\n\n"))
		store := &MemoryStore{}
		g.client.Cursors = store
		ctx, cancel := context.WithCancel(t.Context())
		err := g.client.Run(ctx, Handler{Event: func(context.Context, Event) error { cancel(); return nil }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		wantEqual(t, "cursor", store.Cursor, Cursor{ID: "5-0"})
	})
}

func TestFinishedEventsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, sends("id: 9-1\ndata: a\n\nid: 9-1\ndata: a\n\nid: 9-0\ndata: z\n\nid: 8-5\n\n"), sends("id: 9-1\ndata: a\n\nid: 10-0\ndata: b\n\n"))
		d := play(t, g, &device{}, time.Minute, nil)
		wantEqual(t, "events", d.seen, []string{"9-1=a", "10-0=b"})
		wantEqual(t, "cursors sent", g.lastEventIDs(), []string{"", "9-1", "10-0"})
	})
}

// TestPositions: they move the cursor in their turn, and spare the disk.
func TestPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
			for i := range 30 { // ten minutes of keep-alives
				stream(w, fmt.Sprintf("id: %d-0\n\n", 100+i))
				pass(20 * time.Second)
			}
		})
		store := &countingStore{}
		g.client.Cursors = store
		d := play(t, g, &device{}, time.Hour, nil)
		wantEqual(t, "cursors sent", g.lastEventIDs(), []string{"", "129-0"})
		wantEqual(t, "cursor", store.Cursor, Cursor{ID: "129-0"})
		if store.saves < 5 || store.saves > 11 {
			t.Errorf("%d saves in ten minutes, want about one a minute", store.saves)
		}
		if len(d.seen) > 0 {
			t.Errorf("positions were handled as events: %v", d.seen)
		}
	})
}

type countingStore struct {
	MemoryStore
	saves int
}

func (s *countingStore) Save(c Cursor) error { s.saves++; return s.MemoryStore.Save(c) }

func TestPositionIsSavedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := play(t, newGateway(t, holds("id: 100-0\n\n")), &device{}, time.Second, nil)
		wantEqual(t, "cursor", d.store.Cursor, Cursor{ID: "100-0"})
	})
}

// TestTooLarge: the event can't be skipped, so going on would be a loop.
func TestTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, holds("id: 1-0\ndata: a\n\nid: 2-0\ndata: "+strings.Repeat("x", 2000)+"\n\n"))
		g.client.MaxEventBytes = 1000
		d := play(t, g, &device{}, time.Minute, nil)
		if !errors.Is(d.err, ErrEventTooLarge) {
			t.Errorf("Run: %v, want ErrEventTooLarge", d.err)
		}
		wantEqual(t, "cursor", d.store.Cursor, Cursor{ID: "1-0"})
	})
}

type brokenStore struct{ load, save error }

func (s brokenStore) Load() (Cursor, error) { return Cursor{}, s.load }
func (s brokenStore) Save(Cursor) error     { return s.save }

func TestBrokenStore(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, store := range map[string]brokenStore{"load": {load: broken}, "save": {save: broken}} {
		for kind, frames := range map[string]string{"event": "id: 1-0\ndata: a\n\nid: 2-0\ndata: b\n\n", "position": "id: 1-0\n\n"} {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, sends(frames))
				g.client.Cursors = store
				d := play(t, g, &device{}, time.Minute, nil)
				if !errors.Is(d.err, broken) {
					t.Errorf("%s, %s: Run: %v, want the store's error", name, kind, d.err)
				}
				if len(d.seen) > 1 {
					t.Errorf("%s: went on after the store had failed: %v", name, d.seen)
				}
			})
		}
	}
}

func TestBadSettings(t *testing.T) {
	ok := Handler{Event: func(context.Context, Event) error { return nil }}
	tests := map[string]struct {
		c Client
		h Handler
	}{
		"no URL":         {Client{}, ok},
		"no scheme":      {Client{URL: "push.example.com"}, ok},
		"another scheme": {Client{URL: "ftp://push.example.com"}, ok},
		"no host":        {Client{URL: "http:///x"}, ok},
		"bad URL":        {Client{URL: "http://user:secret@push .example.com"}, ok},
		"no handler":     {Client{URL: "http://push.example.com"}, Handler{}},
		"timeout":        {Client{URL: "http://push.example.com", HTTPClient: &http.Client{Timeout: time.Second}}, ok},
		"line in token":  {Client{URL: "http://push.example.com", Token: "secret\n"}, ok},
	}
	for name, tt := range tests {
		err := tt.c.Run(t.Context(), tt.h)
		if err == nil || !strings.HasPrefix(err.Error(), "client: ") {
			t.Errorf("%s: error %v", name, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

// TestLedger cuts the stream anywhere, hundreds of times: each event is handled
// once and in order.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 500
		cuts := 0
		g := &gateway{client: serve(t, func(w http.ResponseWriter, r *http.Request) {
			from := 0
			if id := r.Header.Get("Last-Event-ID"); id != "" {
				if _, err := fmt.Sscanf(id, "%d-0", &from); err != nil {
					t.Errorf("cursor %q", id)
				}
			}
			if from == events {
				holds("")(w, r)
				return
			}
			var text strings.Builder
			text.WriteString("retry: 100\n\n")
			for i := from + 1; i <= events; i++ {
				fmt.Fprintf(&text, "id: %d-0\nevent: n\ndata: %d\ndata: x\n\n", i, i)
			}
			cuts++
			length := min(text.Len(), 13+cuts*7%211)
			stream(w, text.String()[:length])
			if cuts%2 == 0 {
				panic(http.ErrAbortHandler)
			}
		})}
		g.client.Silence = 48 * time.Hour
		d := play(t, g, &device{}, 24*time.Hour, nil)
		var want []string
		for i := 1; i <= events; i++ {
			want = append(want, fmt.Sprintf("%d-0=%d\nx", i, i))
		}
		wantEqual(t, "events", d.seen, want)
		if cuts < 100 {
			t.Errorf("only %d connections", cuts)
		}
	})
}

// TestNoSecretInErrors: Status.Err and Run's error go to logs.
func TestNoSecretInErrors(t *testing.T) {
	const url = "http://127.0.0.1:1" // nobody listens there
	ctx, cancel := context.WithCancel(t.Context())
	c := Client{URL: strings.Replace(url, "http://", "http://user:secret1@", 1) + "?access_token=secret2", Token: "secret3"}
	var text string
	err := c.Run(ctx, Handler{
		Event:  func(context.Context, Event) error { return nil },
		Status: func(s Status) { text = s.Err.Error(); cancel() },
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(text, "connecting") {
		t.Errorf("Run: %v, status %q", err, text)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the error tells a secret: %s", text)
	}
}
