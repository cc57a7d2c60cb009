package poll

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/session"
)

// dialect is how a poll is spoken to: its clients read every status.
var dialect = door.Dialect{Media: "application/json", Error: refusal}

func header(h http.Header) {
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
}

// refusal is an answer without events, in the form of RFC 9457: its title says
// the status, and its type is the one that needs no name.
func refusal(w http.ResponseWriter, text string, status int) {
	body, err := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, text})
	if err != nil { // two texts and a number don't fail
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone; there is nobody to tell of that
}

// An answer is what a poll brings.
type answer struct {
	events [][]byte // as JSON objects
	cursor event.ID // zero if the client's own one, or none, still counts
	retry  time.Duration
}

func (a answer) body() []byte {
	size := 128
	for _, e := range a.events {
		size += len(e) + 1
	}
	b := append(make([]byte, 0, size), `{"events":[`...)
	for i, e := range a.events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	b = append(b, ']')
	if a.cursor != (event.ID{}) {
		b = append(a.cursor.Append(append(b, `,"cursor":"`...)), '"')
	}
	b = append(b, `,"retry_ms":`...)
	b = strconv.AppendInt(b, a.retry.Milliseconds(), 10)
	return append(b, "}\n"...)
}

// say sends what a poll has come to, and names that.
func (h *Handler) say(w http.ResponseWriter, reason session.EndReason, a answer) outcome {
	switch reason {
	case session.ClientGone:
		return outcome(reason)
	case session.Revoked:
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNoContent) // the next one would be answered so, too
		return outcome(reason)
	}
	body := a.body()
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if reason != "" {
		w.Header().Set("Connection", "close")
	}
	if failed := send(w, body, h.opts.WriteTimeout); failed != "" {
		return outcome(failed)
	}
	switch {
	case reason != "":
		return outcome(reason)
	case len(a.events) == 0:
		return empty
	default:
		return some
	}
}

// chunk is how many bytes are written under one deadline: a slow client isn't a
// dead one.
const chunk = 8 << 10

// send writes a body; the reason is empty if the client took all of it.
func send(w http.ResponseWriter, body []byte, limit time.Duration) (failed session.EndReason) {
	rc := http.NewResponseController(w)
	for len(body) > 0 {
		part := body[:min(len(body), chunk)]
		body = body[len(part):]
		deadline := time.Now().Add(limit)
		if err := rc.SetWriteDeadline(deadline); err != nil {
			return session.Failed
		}
		if _, err := w.Write(part); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline) {
				return session.WriteTimeout // HTTP/2 reports a passed deadline as a closed stream
			}
			return session.ClientGone
		}
	}
	return ""
}
