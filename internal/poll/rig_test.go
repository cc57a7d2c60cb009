package poll

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/session"
	"downlink/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// history is a log that forgets nothing, and may be away.
type history struct {
	mu      sync.Mutex
	entries []eventlog.Entry
	away    bool
}

func (h *history) Range(_ context.Context, _ int, after, upTo event.ID, maxBytes int) (eventlog.Page, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return eventlog.Page{}, eventlog.ErrUnavailable
	}
	page := eventlog.Page{Through: upTo}
	for _, e := range h.entries {
		if !after.Less(e.ID) || upTo.Less(e.ID) {
			continue
		}
		page.Entries = append(page.Entries, e)
		if maxBytes -= len(e.Event.Payload) + 50; maxBytes < 0 {
			page.Through = e.ID
			break
		}
	}
	return page, nil
}

func (h *history) Judge(_ context.Context, _ int, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return nil, eventlog.State{}, eventlog.ErrUnavailable
	}
	return make([]event.Reason, len(questions)), eventlog.State{}, nil
}

// rig is an endpoint over one shard whose position is 1000-0.
type rig struct {
	handler *Handler
	log     history
	shards  *shard.Set
	roster  session.Roster
	head    event.ID

	mu    sync.Mutex
	ended []session.EndReason
}

func newRig(hot int, change func(*Options, *door.Options)) *rig {
	r := &rig{head: event.ID{Ms: 1000}}
	r.shards = shard.NewSet(&r.log, shard.Options{
		Shards: 1, HotBytes: limits.Always(hot), StreamsPerDevice: limits.Always(2), PageBytes: 300, MaxLaps: 1,
		Pacer: shard.NewPacer(0), Metrics: shard.NewMetrics(nil),
	})
	r.log.entries = append(r.log.entries, eventlog.Entry{ID: r.head, Event: event.Event{Target: "nobody", Type: "t"}})
	r.shards.Start(0, r.head)
	opts := Options{
		Shards:  r.shards,
		Session: session.Options{MaxPending: limits.Always(5), MaxBytes: limits.Always(1 << 20)},
		Roster:  &r.roster, Retry: 3 * time.Second, WriteTimeout: 10 * time.Second, Metrics: NewMetrics(nil),
		Ended: func(s *session.Session) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended = append(r.ended, s.Ended())
		},
	}
	before := door.Options{Identify: door.Open, Retry: 3 * time.Second, Metrics: door.NewMetrics(nil)}
	if change != nil {
		change(&opts, &before)
	}
	opts.Door = door.New(before)
	r.handler = New(opts)
	return r
}

// endAll ends every session, and lets none in from now on.
func (r *rig) endAll(reason session.EndReason) {
	for _, s := range r.roster.Close() {
		s.End(reason)
	}
}

// publish stores and dispatches an event, and returns its ID.
func (r *rig) publish(device, payload string) event.ID {
	r.head = r.head.Next()
	e := eventlog.Entry{ID: r.head, Event: event.Event{Target: device, Type: "t", Payload: payload}}
	r.log.mu.Lock()
	r.log.entries = append(r.log.entries, e)
	r.log.mu.Unlock()
	r.shards.Dispatch(0, []eventlog.Entry{e})
	return r.head
}

// recorder is a ResponseWriter in memory.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) SetWriteDeadline(time.Time) error { return nil }

// A call is a poll that is being made.
type call struct {
	hangUp context.CancelFunc
	done   chan *httptest.ResponseRecorder
}

func (r *rig) call(target, cursor string) *call {
	ctx, cancel := context.WithCancel(context.Background())
	req := httptest.NewRequest(http.MethodGet, target, nil).WithContext(ctx)
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	c := &call{hangUp: cancel, done: make(chan *httptest.ResponseRecorder, 1)}
	go func() {
		w := recorder{httptest.NewRecorder()}
		r.handler.ServeHTTP(w, req)
		cancel()
		c.done <- w.ResponseRecorder
	}()
	return c
}

// get makes a poll and waits for its answer.
func (r *rig) get(t *testing.T, target, cursor string) reply {
	t.Helper()
	return read(t, <-r.call(target, cursor).done)
}

type reply struct {
	Status int         `json:"-"`
	Header http.Header `json:"-"`
	Events []struct{ ID, Type, Data string }
	Cursor *string
	Retry  int `json:"retry_ms"`
}

func (r reply) datas() (all []string) {
	for _, e := range r.Events {
		all = append(all, e.Data)
	}
	return all
}

func read(t *testing.T, w *httptest.ResponseRecorder) reply {
	t.Helper()
	a, err := parse(w)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parse(w *httptest.ResponseRecorder) (reply, error) {
	a := reply{Status: w.Code, Header: w.Result().Header}
	if w.Code != http.StatusOK {
		return a, nil
	}
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf("%q: %w", w.Body, err)
	}
	return a, nil
}
