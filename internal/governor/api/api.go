// Package api owns how a governor is seen and changed from outside over HTTP: GET
// and PATCH /v1/governor, and the stream of its changes. It judges nothing and keeps
// nothing but who follows. Its invariant: an answer to a PATCH is what counts from
// then on, and a follower misses no change without being told.
package api

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"downlink/internal/governor"
	"downlink/internal/problem"
)

// Where the handlers belong.
const (
	Path       = "/v1/governor"        // Show and Patch
	EventsPath = "/v1/governor/events" // Follow
)

// Options for Handlers.
type Options struct {
	// Governor is the one that is shown; nil while there is none yet.
	Governor func() *governor.Governor
	// Floor, if set, is where the floor of all levers is kept, in place of the
	// governor's own settings.
	Floor *Floor
	// Stay, if set, is asked before a stream of changes begins: whether its
	// connection may be held. The error is a *problem.Document, and the answer.
	Stay   func(*http.Request) error
	Logger *slog.Logger
}

// A Floor is kept elsewhere. It is a part of 1.
type Floor struct {
	Get func() float64
	// Refuse says why it can't be set to a value; "" if it can. The reason completes
	// the sentence "floor …".
	Refuse func(part float64) (reason string)
	Set    func(part float64) error
}

// Handlers show one governor. Safe for concurrent use.
type Handlers struct {
	opts  Options
	cross *http.CrossOriginProtection
	run   string // of this process: the numbers of changes are its own
	limit time.Duration

	patching sync.Mutex // one PATCH after the other, so that each is answered with its own

	mu        sync.Mutex // guards what follows
	following int
	closed    bool
	end       chan struct{} // closed by Close
}

// writeLimit is how long a follower may take nothing.
const writeLimit = 30 * time.Second

// New makes the handlers.
func New(o Options) *Handlers {
	return &Handlers{opts: o, cross: http.NewCrossOriginProtection(), run: rand.Text()[:8], limit: writeLimit, end: make(chan struct{})}
}

// Close ends the streams of changes, and lets none begin. It doesn't wait for them.
func (h *Handlers) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.end)
	}
}

// A View is a governor as it is shown: its state, and the settings by which it is
// so. Its JSON form is a contract.
type View struct {
	governor.State
	Settings governor.Settings `json:"settings"`
	// Last is the number of the latest change; 0: there was none.
	Last uint64 `json:"last"`
	// Patched is which settings a PATCH has changed that still counts: after what it
	// is now, before what it would be without.
	Patched []Changed `json:"patched,omitempty"`
	// Changed is, in the answer to a PATCH, which settings have another value than
	// before it.
	Changed []Changed `json:"changed,omitempty"`
}

// Show serves GET Path.
func (h *Handlers) Show(w http.ResponseWriter, _ *http.Request) {
	g := h.opts.Governor()
	if g == nil {
		problem.Write(w, notYet())
		return
	}
	answer(w, h.view(g))
}

func notYet() *problem.Document {
	return problem.New(problem.LogUnavailable, "there is no governor yet: the gateway has not reached its log since it started").
		Advise("Repeat the request after Retry-After seconds. Until then no device is served, and nothing is published.")
}

func (h *Handlers) view(g *governor.Governor) View {
	v := View{State: g.State(), Settings: g.Settings()}
	v.Patched = differences(g.Configured(), v.Settings)
	v.Settings = h.settings(v.Settings)
	if changes, _ := g.Changes(0); len(changes) > 0 {
		v.Last = changes[len(changes)-1].Number
	}
	return v
}

// settings are those that count, wherever they are kept.
func (h *Handlers) settings(s governor.Settings) governor.Settings {
	if h.opts.Floor != nil {
		s.Floor = h.opts.Floor.Get()
	}
	return s
}

// encode writes a value as people read it.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

func answer(w http.ResponseWriter, v View) {
	text, err := encode(v)
	if err != nil { // a number that JSON doesn't have
		problem.Write(w, problem.New(problem.Internal, "the state of the governor could not be encoded"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // the client has gone: nobody to tell
}
