// Package sse owns GET /events: the handshake, the rules for a cursor that
// comes from outside, and "no" in the language of an EventSource. It joins a
// session with a connection and knows nothing of either's inside. Its
// invariant: a request is answered at once, whatever the log is doing, and a
// cursor is never a reason for an error.
package sse

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/conn"
	"downlink/internal/event"
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
	// Identify says who asks. An error is shown to the client as it is: a
	// *LaterError as a refusal, an *UnauthorizedError or *RefusedError with its
	// status, any other with 400.
	Identify func(*http.Request) (Identity, error)
	Shards   Shards
	Driver   conn.Driver
	Session  session.Options
	Retry    time.Duration // base of the retry field, jittered by half
	MaxAge   time.Duration // of a connection, jittered by a fifth; 0: no limit
	Metrics  *Metrics
	Logger   *slog.Logger
}

// A Handler serves GET /events. Safe for concurrent use.
type Handler struct {
	opts     Options
	sessions roster
	refusals refusals
}

// New makes the handler.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, refusals: newRefusals(opts)}
	opts.Session.Goodbye = h.retry
	h.opts.Session = opts.Session
	return h
}

// maxBody is how much of a body that a GET shouldn't have is read and thrown
// away, and for how long. An unread body would hide a hang-up.
const (
	maxBody     = 4 << 10
	bodyTimeout = 2 * time.Second
)

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.acceptable(w, r) {
		return
	}
	id, err := h.opts.Identify(r)
	if err != nil {
		h.refusals.unidentified(w, r, err)
		return
	}
	start, err := startOf(r, id.Groups)
	if err != nil {
		h.refusals.reject(w, err)
		return
	}
	header(w, r, id.Groups)
	if r.Method == http.MethodHead {
		return // holds nothing
	}
	h.stream(w, r, id, start)
}

// acceptable settles everything that isn't a request for a stream.
func (h *Handler) acceptable(w http.ResponseWriter, r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		w.Header().Set("Allow", allowed)
		w.WriteHeader(http.StatusNoContent)
		return false
	default:
		w.Header().Set("Allow", allowed)
		h.refusals.reject(w, &RefusedError{http.StatusMethodNotAllowed, "events are read with GET; publish on the back-end listener"})
		return false
	}
	if !acceptsEventStream(r.Header.Values("Accept")) {
		h.refusals.reject(w, &RefusedError{http.StatusNotAcceptable, "this endpoint sends text/event-stream only; ask for it in Accept, or leave Accept out"})
		return false
	}
	if r.ContentLength != 0 && !settleBody(w, r) {
		w.Header().Set("Connection", "close")
		h.refusals.reject(w, &RefusedError{http.StatusRequestEntityTooLarge, "a GET for events has no body"})
		return false
	}
	return true
}

// settleBody reads away a small body within a short while.
func settleBody(w http.ResponseWriter, r *http.Request) bool {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
		return false
	}
	n, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxBody+1))
	return err == nil && n <= maxBody && rc.SetReadDeadline(time.Time{}) == nil
}

const allowed = "GET, HEAD, OPTIONS"

// header sets what every stream has (docs/protocol.md, Response).
func header(w http.ResponseWriter, r *http.Request, groups []string) {
	set := w.Header().Set
	set("Content-Type", "text/event-stream")
	set("Cache-Control", "no-cache, no-transform")
	set("X-Accel-Buffering", "no")
	switch {
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
	case r.Close:
		set("Connection", "close")
	default:
		set("Connection", "keep-alive")
	}
	set(groupsHeader, groupsValue(groups))
}

func (h *Handler) stream(w http.ResponseWriter, r *http.Request, id Identity, start shard.Start) {
	c := h.opts.Driver.New(r)
	s := session.New(id.Device, c, &h.opts.Session)
	if !h.sessions.add(s) {
		h.refusals.refuse(w, r, RefusedDraining)
		return
	}
	if err := s.Attach(h.opts.Shards.Of(id.Device), id.Groups, start); err != nil {
		h.sessions.remove(s)
		h.refusals.refuse(w, r, RefusedTooManyStreams)
		return
	}
	h.opts.Metrics.Active.Inc()
	h.opts.Metrics.Connections.Inc()
	c.Serve(w, r, h.first(), &stream{Session: s, handler: h, age: h.age(s, id.Expires)})
}

// first is what goes out at once. A browser keeps the last retry for ever, so
// each new connection resets what a drain has set.
func (h *Handler) first() []byte {
	return frame.AppendComment(frame.AppendRetry(nil, h.retry()), "downlink")
}

func (h *Handler) retry() time.Duration { return backoff.Jitter(h.opts.Retry, 0.5) }

// age ends the session at its maximum age or soon after its credential
// expires, whichever comes first; nil if neither ever does.
func (h *Handler) age(s *session.Session, expires time.Time) *time.Timer {
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
	return time.AfterFunc(after, func() { s.End(reason) })
}

// EndAll ends every session with a reason, and refuses new ones from now on.
func (h *Handler) EndAll(reason session.EndReason) { h.sessions.endAll(reason) }

// Active is how many sessions there are.
func (h *Handler) Active() int { return h.sessions.len() }

// stream is a session as a connection sees it.
type stream struct {
	*session.Session
	handler *Handler
	age     *time.Timer // nil if it may last for ever
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
	if s.age != nil {
		s.age.Stop()
	}
	s.Session.End(endReason(err))
	s.Detach()
	h := s.handler
	h.sessions.remove(s.Session)
	h.opts.Metrics.Active.Dec()
	h.opts.Metrics.ended(s.Ended())
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

// startOf reads where a client wants to begin. Nothing of a cursor gets any
// further unparsed, and a bad one is told so on the stream: to a browser's
// EventSource an error status would be final.
func startOf(r *http.Request, groups []string) (shard.Start, error) {
	cursor, given, from := asked(r)
	if !given || cursor == "" {
		switch from {
		case "":
			return shard.Start{Reason: event.NoCursor}, nil
		case "earliest":
			return shard.Start{Earliest: true}, nil
		default:
			return shard.Start{}, &RefusedError{http.StatusBadRequest, `from: only "earliest" is known; leave it out for a resync and live events`}
		}
	}
	id, err := event.ParseID(cursor)
	if err != nil {
		return shard.Start{Reason: event.InvalidCursor}, nil
	}
	if before := r.Header.Get(groupsHeader); before != "" && before != groupsValue(groups) {
		return shard.Start{Reason: event.GroupsChanged}, nil
	}
	return shard.Start{Cursor: id}, nil
}

// asked is what a request says of its cursor: the header wins, and of several
// parameters the first.
func asked(r *http.Request) (cursor string, given bool, from string) {
	header := r.Header.Values("Last-Event-ID")
	begun := false
	eachParameter(r.URL.RawQuery, func(name, value string) {
		switch {
		case name == "lastEventId" && !given:
			cursor, given = value, true
		case name == "from" && !begun:
			from, begun = value, true
		}
	})
	if len(header) > 0 {
		cursor, given = header[0], true
	}
	return cursor, given, from
}

// acceptsEventStream reports whether an Accept header allows our media type
// (RFC 9110 §12.5.1). The most specific range decides.
func acceptsEventStream(values []string) bool {
	list := strings.Join(values, ",")
	if list == "" {
		return true
	}
	best, accepted := -1, false
	for part := range strings.SplitSeq(list, ",") {
		fields := strings.Split(part, ";")
		weight := slices.Index([]string{"*/*", "text/*", "text/event-stream"}, strings.ToLower(strings.TrimSpace(fields[0])))
		if weight <= best {
			continue
		}
		best, accepted = weight, !refusedByWeight(fields[1:])
	}
	return accepted
}

func refusedByWeight(params []string) bool {
	for _, p := range params {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") && strings.Trim(value, "0.") == "" {
			return true
		}
	}
	return false
}
