package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// row is a row of conformance/sse-client.json; conformance/README.md says what
// its members mean.
type row struct {
	ID, Case, Title, Applies, Why string
	StartID                       string `json:"start_id"`
	Connections                   []answer
	Items                         []Event
	Requests                      []request
	WaitMS                        []int `json:"wait_ms"`
	CloseAfterItems               int   `json:"close_after_items"`
	Outcome                       string
}

type answer struct {
	Status  int
	Headers map[string]string
	Body    []part
	End     string
}

type part []byte

func (p *part) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		var s string
		err := json.Unmarshal(text, &s)
		*p = part(s)
		return err
	}
	var long struct {
		Text   string
		Times  int
		Base64 []byte
	}
	err := json.Unmarshal(text, &long)
	*p = append(bytes.Repeat([]byte(long.Text), long.Times), long.Base64...)
	return err
}

type request struct {
	LastEventID *string `json:"last_event_id"`
	Headers     map[string]string
	Target      string
}

func TestConformance(t *testing.T) {
	text, err := os.ReadFile("../conformance/sse-client.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []row }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, r := range file.Rows {
		switch r.Applies {
		case "all", "sdk":
			ran++
			t.Run(r.ID+" "+r.Case, func(t *testing.T) {
				t.Log(r.Title)
				synctest.Test(t, func(t *testing.T) { checkRow(t, r) })
			})
		case "browser":
			if r.Why == "" {
				t.Errorf("row %s doesn't say why it is for browsers only", r.ID)
			}
		default:
			t.Errorf("row %s applies to %q", r.ID, r.Applies)
		}
	}
	if ran < 40 {
		t.Errorf("only %d rows ran", ran)
	}
}

// A script answers requests as a row says and notes what it was asked.
type script struct {
	row      row
	requests []request // seen
	waits    []time.Duration
	ended    time.Time // when the last answer ended
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := len(s.requests)
	s.note(r)
	if n >= len(s.row.Connections) {
		http.Error(w, "a request too many", http.StatusTeapot)
		return
	}
	a := s.row.Connections[n]
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.Status)
	for _, p := range a.Body {
		_, _ = w.Write(p) // the client may have gone, as in row W26
	}
	_ = http.NewResponseController(w).Flush()
	switch a.End {
	case "hold":
		<-r.Context().Done()
	case "reset":
		s.ended = time.Now()
		panic(http.ErrAbortHandler)
	}
	s.ended = time.Now()
}

func (s *script) note(r *http.Request) {
	if len(s.requests) > 0 {
		s.waits = append(s.waits, time.Since(s.ended))
	}
	seen := request{Target: r.RequestURI}
	if id := r.Header["Last-Event-Id"]; id != nil {
		seen.LastEventID = &id[0]
	}
	if n := len(s.requests); n < len(s.row.Requests) {
		for name := range s.row.Requests[n].Headers {
			if seen.Headers == nil {
				seen.Headers = map[string]string{}
			}
			seen.Headers[name] = r.Header.Get(name)
		}
	}
	s.requests = append(s.requests, seen)
}

func checkRow(t *testing.T, r row) {
	s := &script{row: r}
	c := serve(t, s.ServeHTTP)
	c.Cursors = &MemoryStore{Cursor{ID: r.StartID}}
	c.Silence = 24 * time.Hour // a held answer is not what these rows are about
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var got []Event
	connected := false
	h := Handler{
		Event: func(_ context.Context, e Event) error {
			got = append(got, e)
			if len(got) == r.CloseAfterItems {
				cancel()
			}
			return nil
		},
		Status: func(s Status) { connected = s.Connected },
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, h) }()
	pass(time.Hour) // virtual: longer than all delays together
	synctest.Wait()

	checkOutcome(t, r.Outcome, connected, done)
	cancel()
	synctest.Wait()
	s.check(t)
	if diff := cmp.Diff(r.Items, got); diff != "" && len(r.Items)+len(got) > 0 {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

func checkOutcome(t *testing.T, want string, connected bool, done <-chan error) {
	t.Helper()
	var err error
	ended := false
	select {
	case err = <-done:
		ended = true
	default:
	}
	got := "waiting"
	switch {
	case !ended && connected:
		got = "open"
	case ended && errors.Is(err, context.Canceled):
		got = "closed"
	case ended && errors.Is(err, ErrRevoked):
		got = "stopped"
	case ended && err != nil:
		got = "failed"
	}
	if got != want {
		t.Errorf("outcome %q (error %v), want %q", got, err, want)
	}
}

func (s *script) check(t *testing.T) {
	t.Helper()
	want := slices.Clone(s.row.Requests)
	for i := range want {
		if want[i].Target == "" {
			want[i].Target = "/events"
		}
	}
	if diff := cmp.Diff(want, s.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for i, ms := range s.row.WaitMS {
		least := time.Duration(ms) * time.Millisecond
		if i >= len(s.waits) || s.waits[i] < least || s.waits[i] > least*5/4 {
			t.Errorf("waits %v, want %v and up to a quarter more at %d", s.waits, least, i)
		}
	}
}
