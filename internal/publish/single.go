package publish

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"downlink/internal/event"
	"downlink/internal/problem"
)

// single answers a request with one message.
func (h *Handler) single(w http.ResponseWriter, r *http.Request, body io.Reader) {
	m, err := h.readSingle(w, r, body)
	if err != nil {
		d := asProblem(err)
		h.metrics.count(d)
		problem.Write(w, d)
		return
	}
	p := newPlan(h.opts.Shards)
	slots := p.add(m, m.once(h.opts.Publisher(r)))
	results := h.append(r.Context(), p)
	o := outcomeOf(slots, results)
	h.account(m, o)
	if o.fault != nil {
		h.logTrouble(o)
		problem.WriteAs(w, o.fault.Status, o.problem(m))
		return
	}
	// On HTTP/2 a client may open no window for its answer.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.opts.BodyTimeout))
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if o.replayed {
		header.Set(ReplayedHeader, "true")
	}
	_, _ = w.Write(appendOutcome(nil, m, o, false)) // the client has gone: nobody to tell
}

func (h *Handler) readSingle(w http.ResponseWriter, r *http.Request, body io.Reader) (*message, error) {
	key, err := headerKey(r)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > int64(h.maxBody) {
		// Unread, the body could only be drained; the connection goes instead.
		w.Header().Set("Connection", "close")
		return nil, h.bodyTooLarge()
	}
	text, err := h.readBody(w, r, body)
	if err != nil {
		return nil, err
	}
	m, err := parse(text, h.opts.MaxEventBytes)
	if err != nil {
		return nil, err
	}
	switch {
	case key == "":
	case m.idem == "":
		m.idem = key
	case m.idem != key:
		return nil, problem.New(problem.InvalidIdempotency, "the header "+IdempotencyHeader+" and the member idem differ").At("idem")
	}
	return m, nil
}

func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, body io.Reader) ([]byte, error) {
	limited := http.MaxBytesReader(w, io.NopCloser(body), int64(h.maxBody))
	var buf bytes.Buffer
	if n := r.ContentLength; n > 0 {
		// A promised length isn't yet memory: it grows as bytes come.
		buf.Grow(int(min(n, 64<<10)) + bytes.MinRead)
	}
	if _, err := io.Copy(&buf, limited); err != nil {
		return nil, h.readFault(err)
	}
	if buf.Len() == 0 {
		return nil, problem.New(problem.InvalidJSON, "the body is empty")
	}
	return buf.Bytes(), nil
}

// readFault says why a body can't be read to its end.
func (h *Handler) readFault(err error) *problem.Document {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return h.bodyTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.New(problem.RequestTimeout, fmt.Sprintf("no byte of the body came for %s", h.opts.BodyTimeout))
	default:
		return problem.New(problem.InvalidJSON, "the body ended too early")
	}
}

func (h *Handler) bodyTooLarge() *problem.Document {
	return problem.New(problem.BodyTooLarge, fmt.Sprintf("it has more than %d bytes, while an event may have %d", h.maxBody, h.opts.MaxEventBytes))
}

// headerKey reads the Idempotency-Key header; it is empty if there is none.
func headerKey(r *http.Request) (string, error) {
	values := r.Header.Values(IdempotencyHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", problem.New(problem.InvalidIdempotency, "there are several "+IdempotencyHeader+" headers")
	}
	if values[0] == "" {
		return "", problem.New(problem.InvalidIdempotency, "the header "+IdempotencyHeader+" is empty")
	}
	probe := event.Event{Target: event.Broadcast, Type: "t", Idem: values[0]}
	if err := probe.Validate(0); err != nil {
		d := refusal(err)
		d.Field = IdempotencyHeader
		return "", d
	}
	return values[0], nil
}

// account counts what became of a message.
func (h *Handler) account(m *message, o outcome) {
	fresh := 0
	switch {
	case o.fault != nil:
		h.metrics.count(o.fault)
		fresh = len(o.stored)
	case o.replayed:
		h.metrics.events.WithLabelValues(resultReplayed).Inc()
	default:
		h.metrics.events.WithLabelValues(resultStored).Inc()
		fresh = len(o.stored)
	}
	h.metrics.entries.Add(float64(fresh))
	h.metrics.bytes.Add(float64(fresh * len(m.payload)))
}

func asProblem(err error) *problem.Document {
	if d, ok := errors.AsType[*problem.Document](err); ok {
		return d
	}
	return problem.New(problem.Internal, "the request could not be read")
}
