package publish

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"downlink/internal/intake"
	"downlink/internal/problem"
)

// single answers a request with one message.
func (h *Handler) single(w http.ResponseWriter, r *http.Request, body *intake.Body, sender Sender) {
	text, _ := h.texts.Get().(*[]byte)
	defer h.recycle(text)
	m, err := h.readSingle(w, r, body, text)
	if err == nil {
		err = permit(sender, m)
	}
	if err != nil {
		d := asProblem(err)
		h.metrics.count(d)
		problem.Write(w, d)
		return
	}
	h.ask(m)
	if refused := h.rates.admit(sender.Name(), m, h.opts.Shards); refused != nil {
		d := refused.problem()
		if refused.cause.Signal != "" {
			w.Header().Set(SignalHeader, refused.cause.Signal)
		}
		h.metrics.count(d)
		problem.Write(w, d)
		return
	}
	p := newPlan(h.opts.Shards, 1)
	slots := p.add(m, m.once(sender.Name()))
	results := h.append(p)
	o := outcomeOf(make([]stored, 0, len(slots)), slots, results)
	h.account(m, o)
	h.giveBack(sender, m, o)
	if o.fault != nil {
		h.logTrouble(o)
		problem.WriteAs(w, o.fault.Status, o.problem(m))
		return
	}
	// On HTTP/2 a client may open no window for its answer.
	_ = body.Conn.SetWriteDeadline(time.Now().Add(h.opts.BodyTimeout))
	header := w.Header()
	header.Set("Content-Type", intake.TypeSingle)
	header.Set("Cache-Control", "no-store")
	if o.replayed {
		header.Set(ReplayedHeader, "true")
	}
	*text = appendOutcome((*text)[:0], m, o, false)
	_, _ = w.Write(*text) // the client has gone: nobody to tell
}

// keptText is the largest buffer that waits for the next request.
const keptText = 64 << 10

func (h *Handler) recycle(text *[]byte) {
	if cap(*text) <= keptText {
		h.texts.Put(text)
	}
}

// readSingle reads the message into text, of which it keeps nothing.
func (h *Handler) readSingle(w http.ResponseWriter, r *http.Request, body *intake.Body, text *[]byte) (*message, error) {
	key, err := intake.Key(r)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > int64(h.maxBody()) {
		// Unread, the body could only be drained; the connection goes instead.
		w.Header().Set("Connection", "close")
		return nil, h.bodyTooLarge()
	}
	if err := h.readBody(w, r, body, text); err != nil {
		return nil, err
	}
	m, err := parse(*text, h.opts.MaxEventBytes())
	if err != nil {
		return nil, err
	}
	switch {
	case key == "":
	case m.idem == "":
		m.idem = key
	case m.idem != key:
		return nil, problem.New(problem.InvalidIdempotency, "the header "+intake.KeyHeader+" and the member idem differ").At("idem")
	}
	return m, nil
}

func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, body *intake.Body, text *[]byte) error {
	if n := int(r.ContentLength); 0 < n && n <= keptText {
		*text = slices.Grow((*text)[:0], n)[:n]
		if _, err := io.ReadFull(body, *text); err != nil {
			return h.readFault(body, err)
		}
		return nil
	}
	limited := http.MaxBytesReader(w, io.NopCloser(body), int64(h.maxBody()))
	// A promised length isn't yet memory: it grows as bytes come.
	buf := bytes.NewBuffer((*text)[:0])
	if _, err := io.Copy(buf, limited); err != nil {
		return h.readFault(body, err)
	}
	*text = buf.Bytes()
	if buf.Len() == 0 {
		return problem.New(problem.InvalidJSON, "the body is empty")
	}
	return nil
}

// readFault says why a body can't be read to its end.
func (h *Handler) readFault(body *intake.Body, err error) *problem.Document {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return h.bodyTooLarge()
	}
	return body.Fault(err)
}

func (h *Handler) bodyTooLarge() *problem.Document {
	return problem.New(problem.BodyTooLarge, fmt.Sprintf("it has more than %d bytes, while an event may have %d", h.maxBody(), h.opts.MaxEventBytes()))
}

// account counts what became of a message.
func (h *Handler) account(m *message, o outcome) {
	fresh := 0
	switch {
	case o.fault != nil:
		h.metrics.count(o.fault)
		fresh = len(o.stored)
	case o.replayed:
		h.metrics.events[resultReplayed].Inc()
	default:
		h.metrics.events[resultStored].Inc()
		fresh = len(o.stored)
	}
	h.stored.Add(uint64(fresh)) //nolint:gosec // a count
	h.metrics.entries.Add(float64(fresh))
	h.metrics.bytes.Add(float64(fresh * len(m.payload)))
}

func asProblem(err error) *problem.Document {
	if d, ok := errors.AsType[*problem.Document](err); ok {
		return d
	}
	return problem.New(problem.Internal, "the request could not be read")
}
