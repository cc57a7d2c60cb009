package api

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"downlink/internal/governor"
	"downlink/internal/problem"
)

const (
	// maxFollowers at a time. They are people and programs of theirs: who asks for a
	// ratio often asks for the state.
	maxFollowers = 64
	// keepAlive is written after so long without a change, so that whoever is
	// between doesn't take the connection for dead.
	keepAlive = 15 * time.Second
	// longest is how long a stream goes on. It is resumed without a loss, and the
	// follower's right to it is looked at again.
	longest = time.Hour
)

// A Gap says that changes between those which a follower had and those which he
// gets aren't remembered any more. Its JSON form is a contract.
type Gap struct {
	After uint64 `json:"after"` // the number of the last change that he had
	Next  uint64 `json:"next"`  // of the one that he gets next
	// Restarted says that After is of another run, whose changes were counted apart:
	// what happened between is unknown.
	Restarted bool `json:"restarted,omitempty"`
}

// Follow serves GET EventsPath: the state, the changes that are remembered or, with
// Last-Event-ID, those after it, and then each as it comes.
func (h *Handlers) Follow(w http.ResponseWriter, r *http.Request) {
	g, fault := h.begin(r)
	if fault != nil {
		problem.Write(w, fault)
		return
	}
	defer h.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold changes back
	if r.Method == http.MethodHead {
		return
	}
	f := follower{h: h, g: g, w: w, rc: http.NewResponseController(w)}
	state := h.view(g)
	f.resume(r.Header.Get("Last-Event-ID"), state.Last)
	f.run(r, state)
}

// begin gives a follower his place, which leave gives back.
func (h *Handlers) begin(r *http.Request) (*governor.Governor, *problem.Document) {
	// A GET needs no leave, and a page of another site could take all places.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return nil, problem.New(problem.CrossOrigin, "a page of another origin sent it")
	}
	g := h.opts.Governor()
	if g == nil {
		return nil, notYet()
	}
	if fault := h.enter(); fault != nil {
		return nil, fault
	}
	if h.opts.Stay == nil {
		return g, nil
	}
	if err := h.opts.Stay(r); err != nil {
		h.leave()
		return nil, refusal(err)
	}
	return g, nil
}

func (h *Handlers) enter() *problem.Document {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return problem.New(problem.ShuttingDown, "this gateway stops")
	case h.following >= maxFollowers:
		return problem.New(problem.TooManyFollowers, fmt.Sprintf("%d follow already", h.following))
	}
	h.following++
	return nil
}

func (h *Handlers) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.following--
}

// Following is how many streams of changes are open.
func (h *Handlers) Following() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.following
}

// A follower is one stream. It keeps no changes: a slow one reads them later, as
// long as the governor remembers them.
type follower struct {
	h  *Handlers
	g  *governor.Governor
	w  http.ResponseWriter
	rc *http.ResponseController

	after   uint64 // the number of the last change that he has
	resumed bool   // he has had some: what is missing between is a gap
	other   uint64 // the last that he had, if that was of another run
}

// resume reads where the follower stands: NUMBER-RUN, as id has written it.
// Whatever else he says is a position of another run. last is that of this one.
func (f *follower) resume(id string, last uint64) {
	if id == "" {
		return
	}
	f.resumed = true
	number, run, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(number, 10, 64)
	if run == f.h.run && n <= last {
		f.after = n
		return
	}
	f.other = max(n, 1)
}

func (f *follower) id(n uint64) string { return strconv.FormatUint(n, 10) + "-" + f.h.run }

// run writes until the follower or the handlers go, or it was long enough.
func (f *follower) run(r *http.Request, state View) {
	over := time.NewTimer(longest)
	defer over.Stop()
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	changes, more := f.g.Changes(f.after)
	if f.write("state", "", state) != nil || f.tell(changes) != nil {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-f.h.end:
			return
		case <-over.C:
			return
		case <-idle.C:
			if f.send(": all is as it was\n\n") != nil || f.flush() != nil {
				return
			}
		case <-more:
			changes, more = f.g.Changes(f.after)
			if f.tell(changes) != nil {
				return
			}
			idle.Reset(keepAlive)
		}
	}
}

// tell writes changes, and first what is missing before them.
func (f *follower) tell(changes []governor.Change) error {
	next := f.after + 1
	if len(changes) > 0 {
		next = changes[0].Number
	}
	switch {
	case f.other > 0:
		if err := f.write("gap", "", Gap{After: f.other, Next: next, Restarted: true}); err != nil {
			return err
		}
	case f.resumed && next > f.after+1:
		if err := f.write("gap", "", Gap{After: f.after, Next: next}); err != nil {
			return err
		}
	}
	f.other, f.resumed = 0, true
	for _, c := range changes {
		if err := f.write("change", f.id(c.Number), c); err != nil {
			return err
		}
		f.after = c.Number
	}
	return f.flush()
}

// write writes an event. Its data is one line, as JSON is.
func (f *follower) write(kind, id string, data any) error {
	text, err := encode(data)
	if err != nil {
		return err
	}
	head := "event: " + kind + "\n"
	if id != "" {
		head += "id: " + id + "\n"
	}
	return f.send(head + "data: " + string(text) + "\n") // text ends its line
}

func (f *follower) send(text string) error {
	if err := f.rc.SetWriteDeadline(time.Now().Add(f.h.limit)); err != nil {
		return err
	}
	_, err := io.WriteString(f.w, text)
	return err
}

// flush sends what was written, and lifts the time limit: on HTTP/2 one that passes
// while the stream is idle would reset it.
func (f *follower) flush() error {
	if err := f.rc.Flush(); err != nil {
		return err
	}
	return f.rc.SetWriteDeadline(time.Time{})
}
