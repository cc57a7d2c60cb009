// Package sse owns GET /events: an event stream's response, its age and its end,
// and "no" in the language of an EventSource. It joins a session with a
// connection and knows nothing of either's inside. Its invariant: a request is
// answered at once, whatever the log is doing.
package sse

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"time"

	"downlink/internal/ageing"
	"downlink/internal/backoff"
	"downlink/internal/conn"
	"downlink/internal/door"
	"downlink/internal/frame"
	"downlink/internal/session"
	"downlink/internal/shard"
)

// Path is where the handler belongs.
const Path = "/events"

// Shards finds the shard of a device.
type Shards interface {
	Of(device string) *shard.Shard
}

// Options for a Handler.
type Options struct {
	Door    *door.Door // who may have a stream
	Shards  Shards
	Driver  conn.Driver
	Session session.Options
	Roster  *session.Roster // of the gateway: who stands in it can be ended
	Ages    *ageing.Book    // of the gateway: ends streams by the clock
	Retry   time.Duration   // base of the retry field, jittered by half
	MaxAge  time.Duration   // of a connection, jittered by a fifth; 0: no limit
	// Ended is told of each session that has ended. Nil: nobody is.
	Ended   func(*session.Session)
	Metrics *Metrics
	Logger  *slog.Logger
}

// A Handler serves GET /events. Safe for concurrent use.
type Handler struct {
	opts Options
}

// New makes the handler.
func New(opts Options) *Handler {
	h := &Handler{opts: opts}
	opts.Session.Goodbye = h.retry
	h.opts.Session = opts.Session
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pass, ok := h.opts.Door.Enter(w, r, dialect)
	if !ok {
		return
	}
	header(w.Header())
	w.Header().Set(door.GroupsHeader, door.GroupsValue(pass.Groups))
	keepOpen(w, r)
	if r.Method == http.MethodHead {
		return // holds nothing
	}
	h.stream(w, r, pass)
}

// dialect is how an EventSource is spoken to: it takes every status but 200 as
// final, so "come back later" is a stream that ends.
var dialect = door.Dialect{
	Media: "text/event-stream",
	Later: func(w http.ResponseWriter, retry time.Duration, why door.Refusal) {
		header(w.Header())
		// The client may be gone; there is nobody to tell of that.
		_, _ = w.Write(frame.AppendComment(frame.AppendRetry(nil, retry), "refused: "+string(why)))
	},
}

// Starting refuses every stream until the gateway can serve one.
func Starting(d *door.Door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.Refuse(w, r, dialect, "", door.RefusedStarting)
	})
}

// header sets what every stream has (docs/protocol.md, Response).
func header(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// keepOpen says what becomes of the connection.
func keepOpen(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
	case r.Close:
		w.Header().Set("Connection", "close")
	default:
		w.Header().Set("Connection", "keep-alive")
	}
}

func (h *Handler) stream(w http.ResponseWriter, r *http.Request, pass door.Pass) {
	c := h.opts.Driver.New(r)
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
	h.opts.Metrics.Connections.Inc()
	c.Serve(w, r, h.first(), &stream{Session: s, handler: h, age: h.age(s, pass.Expires)})
}

// refuse says "come back later" to a device that had passed.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, device string, why door.Refusal) {
	w.Header().Del(door.GroupsHeader) // no cursor follows that it could belong to
	h.opts.Door.Refuse(w, r, dialect, device, why)
}

// first is what goes out at once. A browser keeps the last retry for ever, so
// each new connection resets what a drain has set.
func (h *Handler) first() []byte {
	return frame.AppendComment(frame.AppendRetry(nil, h.retry()), "downlink")
}

func (h *Handler) retry() time.Duration { return backoff.Jitter(h.opts.Retry, 0.5) }

// expirySpread is how much longer than its credential a stream lasts at most.
// Without it thousands of tokens made in one second would end, and come back,
// in one.
const expirySpread = 5 * time.Second

// age has the session ended at its maximum age or soon after its credential
// expires, whichever comes first; nil if neither ever does.
func (h *Handler) age(s *session.Session, expires time.Time) *ageing.Date {
	after, reason := backoff.Jitter(h.opts.MaxAge, 0.2), session.Lifetime
	if !expires.IsZero() {
		// An expiry in centuries must not overflow.
		left := min(max(time.Until(expires), 0), math.MaxInt64-expirySpread) + backoff.Jitter(expirySpread/2, 1)
		if h.opts.MaxAge <= 0 || left < after {
			after, reason = left, session.Expired
		}
	} else if h.opts.MaxAge <= 0 {
		return nil
	}
	return h.opts.Ages.Enter(s, after, reason, 0)
}

// stream is a session as a connection sees it.
type stream struct {
	*session.Session
	handler *Handler
	age     *ageing.Date // nil if it may last for ever
}

// End implements conn.Stream.
func (s *stream) End() (last []byte, over bool) {
	if s.Ended() == "" {
		return nil, false
	}
	return s.Goodbye(), true
}

// Closed implements conn.Stream.
func (s *stream) Closed(err error) {
	s.age.Strike()
	s.Session.End(endReason(err))
	s.Detach()
	h := s.handler
	h.opts.Roster.Remove(s.Session)
	h.opts.Metrics.Active.Dec()
	h.opts.Metrics.ended(s.Ended())
	if h.opts.Ended != nil {
		h.opts.Ended(s.Session)
	}
	h.opts.Logger.Debug("session ended", "session", s.Session, "reason", s.Ended())
}

// endReason names the end of a connection. Nil leaves the session's own
// reason standing: the first one counts.
func endReason(err error) session.EndReason {
	switch {
	case errors.Is(err, conn.ErrStalled):
		return session.WriteTimeout
	case errors.Is(err, conn.ErrUnexpected):
		return session.Unexpected
	case errors.Is(err, conn.ErrCut):
		return session.Draining
	case errors.Is(err, conn.ErrTransport):
		return session.Failed
	default:
		return session.ClientGone
	}
}
