// Package post owns one event's way to one device by HTTP: the form of the
// request, and what is known of it afterwards. It neither chooses the event nor
// repeats it. Its invariant: a device gets a request at most once for each call,
// and "nothing was sent" is said only when not a byte of it was.
package post

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"downlink/internal/egress"
	"downlink/internal/inventory"
)

// Headers of the request.
const (
	EventHeader  = "Downlink-Event"  // the event's type
	DeviceHeader = "Downlink-Device" // for whom it is
	IDHeader     = "Downlink-Id"     // the entry's ID, of an event from the log
)

// idempotencyHeader isn't in net/http's spelling on purpose: under that name the
// transport takes a POST for one that may be repeated, and repeats it by itself
// when a connection breaks after it was sent. On the wire case means nothing
// (RFC 9110 §5.1).
const idempotencyHeader = "idempotency-key"

// Stages after those of the way there (egress.Stage): something was sent.
const (
	Send   egress.Stage = "send"   // the request broke off
	Answer egress.Stage = "answer" // no answer came
)

// An Event is what a device is sent.
type Event struct {
	Type    string
	Payload string
	ID      string // of its entry in the log; empty: it isn't from there
	Idem    string // idempotency key; empty: its ID is, if it has one
	Trace   string // W3C traceparent, may be empty
	State   string // W3C tracestate, may be empty
	// Extra are more headers; nil: none.
	Extra http.Header
}

// A Reply is what a device answered.
type Reply struct {
	Status      int
	ContentType string
	RetryAfter  time.Duration // 0: it didn't say
	Body        []byte
	Cut         bool // it went on, or was to, after what Body holds
}

// OK reports whether the device has taken the event.
func (r *Reply) OK() bool { return 200 <= r.Status && r.Status <= 299 }

// A Failure is why there is no answer.
type Failure struct {
	Stage   egress.Stage
	Timeout bool // it was a time limit
	// Sent is whether the device may have got the event. If not, a repeat can't
	// be a second one.
	Sent bool
	Err  error
}

func (f *Failure) Error() string {
	if f.Sent {
		return string(f.Stage) + ": " + f.Err.Error() + "; the device may have had it"
	}
	return string(f.Stage) + ": " + f.Err.Error() + "; nothing was sent"
}

func (f *Failure) Unwrap() error { return f.Err }

// Options for a Poster. Egress is required.
type Options struct {
	Egress  *egress.Egress
	Timeout time.Duration // of a call, from the first step to the end of the answer; 0 means 10 s
	// AnswerBytes is how much of an answer's body is kept; nil means 64 KiB.
	AnswerBytes func() int
}

// A Poster posts. Safe for concurrent use.
type Poster struct{ opts Options }

// New makes a poster.
func New(o Options) *Poster {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.AnswerBytes == nil {
		o.AnswerBytes = func() int { return 64 << 10 }
	}
	return &Poster{o}
}

// Post sends an event to a device and waits for its answer, whatever that is. An
// error is a *Failure. It ends when ctx does.
func (p *Poster) Post(ctx context.Context, d inventory.Device, e Event) (*Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	ctx, progress := egress.Track(ctx)
	var s sending
	req, err := newRequest(httptrace.WithClientTrace(ctx, s.trace(progress)), d, &e)
	if err != nil {
		return nil, &Failure{Stage: egress.Policy, Err: err}
	}
	resp, err := p.opts.Egress.Client(d.Credential).Transport.RoundTrip(req)
	if err != nil {
		return nil, s.failure(ctx, progress, err)
	}
	defer resp.Body.Close()
	return p.read(resp), nil
}

var errURL = errors.New("the device's url isn't one for a POST: want http or https")

func newRequest(ctx context.Context, d inventory.Device, e *Event) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, strings.NewReader(e.Payload))
	if err != nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, errURL
	}
	h := req.Header
	maps.Copy(h, e.Extra)
	h.Set("User-Agent", "downlink")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if json.Valid([]byte(e.Payload)) {
		h.Set("Content-Type", "application/json")
	}
	h.Set(EventHeader, e.Type)
	h.Set(DeviceHeader, d.ID)
	key := e.Idem
	if e.ID != "" {
		h.Set(IDHeader, e.ID)
		if key == "" {
			key = e.ID
		}
	}
	if key != "" {
		h[idempotencyHeader] = []string{key}
	}
	if e.Trace != "" {
		h.Set("Traceparent", e.Trace)
	}
	if e.State != "" {
		h.Set("Tracestate", e.State)
	}
	return req, nil
}

// sending is what is known of a request on its way.
type sending struct {
	begun, done atomic.Bool
}

// trace notes how far it comes. A new attempt means that of the one before not a
// byte was written: nothing else is tried again.
func (s *sending) trace(p *egress.Progress) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			p.Reset()
			s.begun.Store(false)
			s.done.Store(false)
		},
		GotConn:      func(httptrace.GotConnInfo) { s.begun.Store(true) },
		WroteRequest: func(i httptrace.WroteRequestInfo) { s.done.Store(i.Err == nil) },
	}
}

func (s *sending) failure(ctx context.Context, p *egress.Progress, err error) *Failure {
	if known, ok := errors.AsType[*egress.Error](err); ok {
		return &Failure{Stage: known.Stage, Timeout: known.Timeout, Err: known.Err}
	}
	f := &Failure{Timeout: errors.Is(ctx.Err(), context.DeadlineExceeded), Sent: s.begun.Load(), Err: egress.Told(err)}
	switch {
	case f.Timeout:
		f.Err = context.DeadlineExceeded
	case ctx.Err() != nil:
		f.Err = context.Canceled
	}
	switch stage := p.Stage(); {
	case f.Sent && s.done.Load():
		f.Stage = Answer
	case f.Sent:
		f.Stage = Send
	case stage != "":
		f.Stage = stage
	default:
		f.Stage = egress.Connect
	}
	return f
}

// read takes what the device says. Its status is its answer: if the rest doesn't
// come, that is no reason to say that there was none.
func (p *Poster) read(resp *http.Response) *Reply {
	r := &Reply{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return r // what follows is no body, and may never end
	}
	most := p.opts.AnswerBytes()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if len(body) > most {
		body, r.Cut = body[:most], true
	}
	r.Body, r.Cut = body, r.Cut || err != nil
	return r
}

// maxRetryAfter is the longest that is believed.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads a Retry-After in seconds; in its other form, a date, it would
// hang on the device's clock.
func retryAfter(text string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

// String is for logs.
func (r *Reply) String() string {
	return fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))
}
