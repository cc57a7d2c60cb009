package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
)

// maxBody bounds what may come with an order.
const maxBody = eventlog.MaxControlBytes

// details are what may come with an order.
type details struct {
	Reason  string `json:"reason"`
	RetryMs int64  `json:"retry_ms"`
}

// read reads an order. An empty body says nothing, and is fine.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, kind eventlog.ControlKind) (eventlog.Control, *problem.Document) {
	order := eventlog.Control{Kind: kind, Device: r.PathValue("device")}
	// A page of another site can make a browser post without a body or a
	// preflight, to a back end that asks for no token.
	if err := h.cross.Check(r); err != nil {
		return order, problem.New(problem.CrossOrigin, "a page of another origin sent it")
	}
	d, fault := readDetails(w, r)
	if fault != nil {
		return order, fault
	}
	order.Reason = d.Reason
	// A number that overflows as a duration is out of bounds.
	order.Retry = time.Duration(min(max(d.RetryMs, -1), eventlog.MaxRetry.Milliseconds()+1)) * time.Millisecond
	if wrong, ok := errors.AsType[*event.Error](order.Validate()); ok {
		return order, problem.New(problem.InvalidOrder, wrong.Error()).At(wrong.Field)
	}
	return order, nil
}

func readDetails(w http.ResponseWriter, r *http.Request) (d details, fault *problem.Document) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return d, problem.New(problem.BodyTooLarge, "an order has a body of at most 4 KiB").Advise("Shorten the reason.")
	}
	if err != nil {
		return d, problem.New(problem.RequestTimeout, "the body broke off")
	}
	if len(body) == 0 {
		return d, nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return d, problem.New(problem.UnsupportedMedia, "the body of an order is application/json").
			Advise("Send Content-Type: application/json, or no body at all.")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return d, wrongJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return d, problem.New(problem.InvalidJSON, "something follows the object")
	}
	return d, nil
}

func wrongJSON(err error) *problem.Document {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return problem.New(problem.InvalidOrder, "has the wrong type: "+wrong.Value).At(wrong.Field)
	}
	// The library has no type for this error.
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return problem.New(problem.UnknownMember, "an order has no member "+name).
			Advise("Remove it, or correct its name. Known are reason and, for disconnect, retry_ms.")
	}
	return problem.New(problem.InvalidJSON, "the body isn't one JSON object")
}
