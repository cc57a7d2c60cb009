// Package intake owns how a producer's request comes in at the back end's port,
// whatever is done with it: its form, its idempotency key, a body that is read
// with bounded memory and patience, and an answer that is written beside it. It
// doesn't know what an event is for. Its invariant: no client makes it hold more
// than a line, or wait longer than it was told to.
package intake

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"

	"downlink/internal/event"
	"downlink/internal/problem"
)

// KeyHeader carries a request's idempotency key.
const KeyHeader = "Idempotency-Key"

// A Form is how a request carries its events.
type Form string

// The forms.
const (
	Single  Form = "single"  // one JSON object
	Batch   Form = "batch"   // NDJSON
	Unknown Form = "unknown" // refused before it was read
)

// The media types of the forms, and of their answers.
const (
	TypeSingle = "application/json"
	TypeBatch  = "application/x-ndjson"
)

// FormOf refuses what isn't a POST of a known media type. Without a type too:
// a browser sends a cross-site POST unasked as long as it isn't one of these.
func FormOf(r *http.Request) (Form, *problem.Document) {
	if r.Method != http.MethodPost {
		return Unknown, problem.New(problem.MethodNotAllowed, "events are sent here with POST, not "+Clip(r.Method))
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return Unknown, problem.New(problem.UnsupportedMedia, "the body is encoded ("+Clip(e)+")")
	}
	given := r.Header.Get("Content-Type")
	switch given { // as nearly everybody writes them
	case TypeSingle:
		return Single, nil
	case TypeBatch:
		return Batch, nil
	}
	media, params, err := mime.ParseMediaType(given)
	if c := params["charset"]; err == nil && c != "" && !strings.EqualFold(c, "utf-8") {
		return Unknown, problem.New(problem.UnsupportedMedia, "the charset is "+Clip(c)+", not UTF-8")
	}
	switch {
	case given == "":
		return Unknown, problem.New(problem.UnsupportedMedia, "the request has no Content-Type")
	case err == nil && media == TypeSingle:
		return Single, nil
	case err == nil && media == TypeBatch:
		return Batch, nil
	default:
		return Unknown, problem.New(problem.UnsupportedMedia, "the Content-Type is "+Clip(given))
	}
}

// Key reads the Idempotency-Key header; it is empty if there is none. The error
// is a *problem.Document.
func Key(r *http.Request) (string, error) {
	values := r.Header[KeyHeader] // the name is canonical
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", problem.New(problem.InvalidIdempotency, "there are several "+KeyHeader+" headers")
	}
	if values[0] == "" {
		return "", problem.New(problem.InvalidIdempotency, "the header "+KeyHeader+" is empty")
	}
	probe := event.Event{Target: event.Broadcast, Type: "t", Idem: values[0]}
	if bad, ok := errors.AsType[*event.Error](probe.Validate(0)); ok {
		return "", problem.New(problem.InvalidIdempotency, "the key "+bad.Reason).At(KeyHeader)
	}
	return values[0], nil
}

// Fault says why a body can't be read to its end.
func (b *Body) Fault(err error) *problem.Document {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return problem.New(problem.RequestTimeout, fmt.Sprintf("no byte of the body came for %s", b.timeout))
	}
	return problem.New(problem.InvalidJSON, "the body ended too early")
}

// Clip shortens what a client sent, for use in a message.
func Clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
