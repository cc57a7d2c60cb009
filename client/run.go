package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/frame"
)

// A run is one call of Run. Only its goroutine touches it.
type run struct {
	desk
	// Set at construction.
	http     *http.Client
	url      *url.URL
	token    string
	earliest bool
	poll     bool
	silence  time.Duration

	parser frame.Parser
	asked  time.Duration // what the last poll's answer said to wait
	// failures counts attempts since a stream last began.
	failures int
}

// errSilent ends a connection that is alive only in name.
var errSilent = errors.New("the gateway sent nothing, not even a keep-alive, for too long")

func (r *run) loop(ctx context.Context) error {
	for {
		err := r.attempt(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f, ok := errors.AsType[*final](err); ok {
			return f.err
		}
		if err := r.cursor.flush(); err != nil {
			return err
		}
		wait := r.delay(err)
		r.status(Status{Err: err, Wait: wait})
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		if err != nil {
			// HTTP/2 would ask again over the same dead connection. Now, after
			// the wait, the transport counts it as idle.
			r.http.CloseIdleConnections()
		}
	}
}

// attempt is connected until something ends that.
func (r *run) attempt(ctx context.Context) error {
	if r.poll {
		return r.pollOn(ctx)
	}
	return r.connect(ctx)
}

// connect asks for the stream and reads it to its end. A *final error means
// that another try is useless; nil that the gateway ended the stream in order.
func (r *run) connect(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	silence := time.AfterFunc(r.silence, func() { cancel(errSilent) })
	defer silence.Stop()

	r.failures++
	resp, err := r.http.Do(r.request(ctx))
	silence.Stop()
	if err != nil {
		return r.lost(ctx, "connecting", err)
	}
	defer resp.Body.Close()
	if err := checkResponse(resp, eventStream); err != nil {
		silence.Reset(r.silence)
		return explain(err, resp)
	}
	r.failures = 0
	r.cursor.groups = resp.Header.Get(headerGroups)
	r.parser.Reset(r.cursor.now.ID)
	r.status(Status{Connected: true})

	buffer := make([]byte, 16<<10)
	for {
		silence.Reset(r.silence)
		n, err := resp.Body.Read(buffer)
		silence.Stop() // handlers may take their time
		if ferr := r.feed(parent, buffer[:n]); ferr != nil {
			return ferr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return r.lost(ctx, "reading", err)
		}
	}
}

func (r *run) request(ctx context.Context) *http.Request {
	u := *r.url
	header := http.Header{
		"Accept":        {r.media()},
		"Cache-Control": {"no-cache"},
		// Asked for in words, so that the transport doesn't ask for gzip.
		"Accept-Encoding": {"identity"},
		headerClient:      {"go/" + Version},
	}
	if r.token != "" {
		header.Set("Authorization", "Bearer "+r.token)
	}
	switch id := r.cursor.now.ID; {
	case id != "":
		header.Set("Last-Event-ID", headerSafe(id))
	case r.earliest:
		q := u.Query()
		q.Set("from", "earliest")
		u.RawQuery = q.Encode()
	}
	if r.cursor.now.Groups != "" {
		header.Set(headerGroups, headerSafe(r.cursor.now.Groups))
	}
	req := &http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return req.WithContext(ctx)
}

// headerSafe replaces a value that can't travel in a header, such as that of a
// damaged file, by one that the gateway answers with a resync. Sending none
// could mean "from the earliest", which skips in silence.
func headerSafe(value string) string {
	for _, c := range []byte(value) {
		if c < 0x20 && c != '\t' || c == 0x7F {
			return "unreadable"
		}
	}
	return value
}

// lost says why there is no connection. The library's text would repeat the
// URL with its query, which may hold a token.
func (r *run) lost(ctx context.Context, doing string, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%s: %s: %w", r.url.Host, doing, err)
}

func (r *run) feed(ctx context.Context, chunk []byte) error {
	err := r.parser.Feed(chunk, func(e frame.Event) error { return r.deliver(ctx, e) })
	if errors.Is(err, frame.ErrBlockTooLarge) {
		return &final{fmt.Errorf("%w (at %d bytes)", ErrEventTooLarge, r.maxBlock())}
	}
	return err
}

func (r *run) maxBlock() int {
	if r.parser.MaxBlock > 0 {
		return r.parser.MaxBlock
	}
	return DefaultMaxEventBytes
}

// deliver takes one frame in its turn. Its errors are *final.
func (r *run) deliver(ctx context.Context, e frame.Event) error {
	if ctx.Err() != nil {
		return &final{ctx.Err()} // nothing is handled after the end
	}
	return asFinal(r.take(ctx, ctx, e))
}

// delay is how long to wait before the next attempt after err.
func (r *run) delay(err error) time.Duration {
	retry, ok := r.parser.Retry()
	if !ok {
		retry = defaultRetry
	}
	if r.asked > 0 {
		retry = r.asked
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		retry = max(retry, refused.after)
	}
	retry = min(max(retry, minRetry), maxRetry)
	wait := spread(retry)
	if r.failures > 1 {
		wait += backoff.Backoff{Base: retry, Max: maxBackoff}.Delay(r.failures - 2)
	}
	return wait
}

func (r *run) status(s Status) {
	if r.handler.Status != nil {
		r.handler.Status(s)
	}
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
