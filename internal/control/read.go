package control

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
	"downlink/internal/strictjson"
)

// maxBody bounds what may come with an order.
const maxBody = eventlog.MaxControlBytes

// details are what may come with an order.
type details struct {
	Reason  string
	RetryMs int64
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
	err = strictjson.Read(body, map[string]any{"reason": &d.Reason, "retry_ms": &d.RetryMs})
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		return d, wrongJSON(wrong)
	}
	return d, nil
}

func wrongJSON(wrong *strictjson.Error) *problem.Document {
	switch wrong.Fault {
	case strictjson.WrongKind:
		return problem.New(problem.InvalidOrder, "has the wrong type").At(wrong.Member)
	case strictjson.Twice:
		return problem.New(problem.DuplicateMember, fmt.Sprintf("%q stands twice", wrong.Member)).At(wrong.Member)
	case strictjson.Unknown:
		return problem.New(problem.UnknownMember, fmt.Sprintf("%q isn't a member of an order", wrong.Member)).
			Advise("Remove it, or correct its name. Known are reason and, for disconnect, retry_ms.")
	default:
		return problem.New(problem.InvalidJSON, "the body isn't one JSON object")
	}
}
