// Package poll owns GET /poll: a session whose sink is one answer, for networks
// whose middle boxes hold streams back. It delivers nothing by itself: a session
// does, from the same shard as a stream's, and who may pass is the door's
// business. Its invariant: between two polls the gateway keeps nothing for the
// device, whose cursor says all; so an answer that was lost comes again.
package poll

import (
	"net/http"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/door"
	"downlink/internal/session"
	"downlink/internal/shard"
)

// Path is where the handler belongs.
const Path = "/poll"

// Shards finds the shard of a device.
type Shards interface {
	Of(device string) *shard.Shard
}

// Options for a Handler.
type Options struct {
	Door         *door.Door // who may ask
	Shards       Shards
	Session      session.Options
	Roster       *session.Roster // of the gateway: who stands in it can be ended
	Retry        time.Duration   // base of retry_ms where an end is in order, jittered by half
	WriteTimeout time.Duration   // a client that takes nothing of its answer for so long is cut
	// Ended is told of each session that has ended. Nil: nobody is.
	Ended   func(*session.Session)
	Metrics *Metrics
}

// A Handler serves GET /poll. Safe for concurrent use.
type Handler struct {
	opts Options
}

// New makes the handler.
func New(opts Options) *Handler {
	h := &Handler{opts: opts}
	h.opts.Session.JSON = true
	h.opts.Session.Goodbye = func() time.Duration { return backoff.Jitter(opts.Retry, 0.5) }
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wait, err := waitOf(r)
	if err != nil {
		h.opts.Door.Reject(w, r, dialect, "", err)
		return
	}
	pass, ok := h.opts.Door.Enter(w, r, dialect)
	if !ok {
		return
	}
	header(w.Header())
	w.Header().Set(door.GroupsHeader, door.GroupsValue(pass.Groups))
	if r.Method == http.MethodHead {
		return // holds nothing
	}
	// What bounds other answers counts from their beginning; HTTP/2 would reset
	// this one while it waits.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	h.poll(w, r, pass, wait)
}

func (h *Handler) poll(w http.ResponseWriter, r *http.Request, pass door.Pass, wait time.Duration) {
	c := &caller{request: r, wake: make(chan struct{}, 1)}
	s := session.New(pass.Device, c, &h.opts.Session)
	s.Know(session.Facts{Since: time.Now(), Expires: pass.Expires, Credential: pass.Credential})
	if !h.opts.Roster.Add(s, pass.Valid) {
		h.refuse(w, r, pass.Device, door.RefusedDraining)
		return
	}
	if err := s.Attach(h.opts.Shards.Of(pass.Device), pass.Groups, pass.Start); err != nil {
		h.opts.Roster.Remove(s)
		h.refuse(w, r, pass.Device, door.RefusedTooManyStreams)
		return
	}
	if h.opts.Door.Revoked(pass.Device) {
		s.End(session.Revoked) // it came in while the order did
	}
	h.opts.Metrics.Active.Inc()
	// The session ends before its answer goes out: a client that asks again at
	// once must not meet its own last poll.
	a := h.gather(s, c, wait, pass.Expires)
	reason := s.Ended()
	outcome := h.say(w, reason, a)
	h.opts.Metrics.answered(outcome)
}

// refuse says "come back later" to a device that had passed.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, device string, why door.Refusal) {
	w.Header().Del(door.GroupsHeader) // no cursor follows that it could belong to
	h.opts.Door.Refuse(w, r, dialect, device, why)
}

// gather is what a session gives within a while. The session has ended when it
// returns; its reason is empty if the answer's turn had simply come.
func (h *Handler) gather(s *session.Session, c *caller, wait time.Duration, expires time.Time) answer {
	defer func() {
		s.Detach()
		h.opts.Roster.Remove(s)
		h.opts.Metrics.Active.Dec()
		if h.opts.Ended != nil {
			h.opts.Ended(s)
		}
	}()
	a := answer{events: c.await(s, wait, expires)}
	if len(a.events) == 0 {
		s.Advance()
	}
	a.cursor = s.Cursor()
	if s.Ended() != "" || wait == 0 && len(a.events) == 0 {
		a.retry = s.Retry()
	}
	return a
}

// Starting refuses every poll until the gateway can serve one.
func Starting(d *door.Door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.Refuse(w, r, dialect, "", door.RefusedStarting)
	})
}
