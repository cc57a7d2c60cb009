package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"downlink/internal/problem"
	"downlink/internal/publish"
)

// maxAnswer bounds an answer in memory: 1,000 lines of a batch, each a problem.
const maxAnswer = 16 << 20

// A sender asks a back end, and repeats what it could not answer.
type sender struct {
	http    *http.Client
	url     string // of the back end, without a slash at its end
	retries int
	notes   io.Writer // for a person: why it takes longer
	run     string    // random: no other run of the program uses these keys
}

func newSender(backend string, timeout time.Duration, retries int, notes io.Writer) (*sender, error) {
	u, err := url.Parse(backend)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("--backend isn't an address of a back end; write it as http://127.0.0.1:9090")
	}
	return &sender{
		http:    &http.Client{Timeout: timeout},
		url:     strings.TrimRight(backend, "/"),
		retries: retries,
		notes:   notes,
		run:     rand.Text(),
	}, nil
}

// A temporary error may be gone at the next try.
type temporary struct {
	err  error
	wait time.Duration // what the gateway asked for; 0 if it asked for nothing
	// onward: this try got further than the one before, so it costs no retry.
	onward bool
}

func (t *temporary) Error() string { return t.err.Error() }
func (t *temporary) Unwrap() error { return t.err }

// An accept takes an answer, or says why it can't.
type accept func(status int, body []byte) error

// publish sends events. The key makes the repetition harmless.
func (s *sender) publish(ctx context.Context, media, key string, body []byte, accept accept) ([]byte, error) {
	header := http.Header{"Content-Type": {media}, publish.IdempotencyHeader: {key}}
	return s.send(ctx, http.MethodPost, publish.Path, header, body, accept)
}

// send asks until accept takes the answer, which it returns, or until accept's
// error isn't temporary. Asking twice must be harmless.
func (s *sender) send(ctx context.Context, method, path string, header http.Header, body []byte, accept accept) ([]byte, error) {
	for try := 0; ; try++ {
		answer, err := s.ask(ctx, method, path, header, body, accept)
		again, ok := errors.AsType[*temporary](err)
		if ok && again.onward {
			try = 0
		}
		if !ok || try >= s.retries && !again.onward || ctx.Err() != nil {
			return answer, err
		}
		wait := max(again.wait, time.Second<<min(try, 5))
		what, _, _ := strings.Cut(again.Error(), "\n")               // the hint says to do what is done here
		fmt.Fprintf(s.notes, "%s; trying again in %s\n", what, wait) //nolint:errcheck // nowhere else to complain
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, err
		}
	}
}

func (s *sender) ask(ctx context.Context, method, path string, header http.Header, body []byte, accept accept) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, &temporary{err: unreachable(err)}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &temporary{err: fmt.Errorf("the answer broke off: %w", err)}
	}
	err = accept(resp.StatusCode, answer)
	if again, ok := errors.AsType[*temporary](err); ok {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		again.wait = max(again.wait, time.Duration(min(max(seconds, 0), 60))*time.Second)
	}
	return answer, err
}

// unreachable leaves out the URL, which the library puts first.
func unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("the gateway can't be reached: %w; is it running, and is --backend its back-end port?", err)
}

// refusalOf is the error that an answer other than 200 means.
func refusalOf(status int, body []byte) error {
	var d problem.Document
	if err := json.Unmarshal(body, &d); err != nil || d.Title == "" {
		d = problem.Document{Title: fmt.Sprintf("the answer is %d %s", status, http.StatusText(status)), Hint: "Is --backend the back-end port of a gateway?"}
	}
	err := fmt.Errorf("%s\n%s", d.Error(), d.Hint)
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		return &temporary{err: err}
	}
	return refused(err)
}
