package sse

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/frame"
)

// A Refusal is why a stream isn't opened although the request is in order: the
// same word in header, comment, metric and documentation.
type Refusal string

// The refusals.
const (
	RefusedTooManyStreams Refusal = "streams_per_device"
	RefusedDraining       Refusal = "draining"
	RefusedStarting       Refusal = "starting"         // the log hasn't been reached yet
	RefusedNoKeys         Refusal = "keys_unavailable" // the keys for tokens haven't been fetched yet
)

// Refusals lists every refusal, for metrics and documentation.
func Refusals() []Refusal {
	return []Refusal{RefusedTooManyStreams, RefusedDraining, RefusedStarting, RefusedNoKeys}
}

// A RefusedError is a request that can't become a stream as it is.
type RefusedError struct {
	Status int
	Reason string // what is wrong and what to do
}

func (e *RefusedError) Error() string { return e.Reason }

// maxHeld is how many refusals are held back at a time; more go out at once.
const maxHeld = 1000

// holdFor is how long a refusal is held back, jittered by half. A gateway that
// refuses at once looks like the fastest one to a load balancer.
const holdFor = 500 * time.Millisecond

// Starting refuses every stream until the gateway can serve one. retry and
// metrics are as in Options.
func Starting(retry time.Duration, metrics *Metrics) http.Handler {
	f := newRefusals(Options{Retry: retry, Metrics: metrics})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header(w, r, nil)
		f.refuse(w, r, RefusedStarting)
	})
}

// refusals answers "no". A native EventSource takes every status but 200 as
// final, so "come back later" is a stream that ends.
type refusals struct {
	opts Options
	held chan struct{}
}

func newRefusals(opts Options) refusals {
	return refusals{opts: opts, held: make(chan struct{}, maxHeld)}
}

// refuse says "come back later", in the language that the client speaks.
func (f *refusals) refuse(w http.ResponseWriter, r *http.Request, why Refusal) {
	f.opts.Metrics.refused(why)
	f.hold(r)
	retry := backoff.Jitter(f.opts.Retry, 0.5)
	h := w.Header()
	h.Del(groupsHeader) // no cursor follows that it could belong to
	h.Set("Downlink-Refused", string(why))
	h.Set("Connection", "close")
	if r.Header.Get("Downlink-Client") != "" {
		h.Del("Content-Type")
		h.Set("Retry-After", strconv.Itoa(int(retry.Round(time.Second)/time.Second)))
		http.Error(w, "refused: "+string(why), http.StatusServiceUnavailable)
		return
	}
	// The client may be gone; there is nobody to tell of that.
	_, _ = w.Write(frame.AppendComment(frame.AppendRetry(nil, retry), "refused: "+string(why)))
}

func (f *refusals) hold(r *http.Request) {
	select {
	case f.held <- struct{}{}:
		defer func() { <-f.held }()
	default:
		return
	}
	select {
	case <-r.Context().Done():
	case <-time.After(backoff.Jitter(holdFor, 0.5)):
	}
}

// reject says what is wrong with a request, finally.
func (f *refusals) reject(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		status = refused.Status
	}
	f.opts.Metrics.Rejected.Inc()
	http.Error(w, err.Error(), status)
}
