package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"downlink/internal/frame"
)

// pollWait is how long a gateway waits for something to answer with, unless it
// was told otherwise.
const pollWait = 30 * time.Second

// pollBytes is about how much a gateway puts into one answer, beside the event
// that goes over it.
const pollBytes = 1 << 20

// A polled answer is what one poll brings.
type polled struct {
	Events []struct{ ID, Type, Data string }
	Cursor string
	Retry  float64 `json:"retry_ms"`
}

func (r *run) media() string {
	if r.poll {
		return pollAnswer
	}
	return eventStream
}

// pollOn polls until an answer says to wait, which is nil, or one fails.
func (r *run) pollOn(ctx context.Context) error {
	r.asked = 0
	for first := true; ; first = false {
		answer, err := r.ask(ctx)
		if err != nil {
			return err
		}
		r.failures = 0
		if first {
			r.status(Status{Connected: true})
		}
		for _, e := range answer.Events {
			if err := r.deliver(ctx, frame.Event{ID: e.ID, HasID: true, Type: e.Type, Data: e.Data}); err != nil {
				return err
			}
		}
		if answer.Cursor != "" && answer.Cursor != r.cursor.now.ID {
			if err := r.cursor.move(answer.Cursor); err != nil {
				return &final{err}
			}
		}
		if ms := min(answer.Retry, float64(maxRetry.Milliseconds())); ms > 0 {
			r.asked = time.Duration(ms * float64(time.Millisecond))
			return nil
		}
	}
}

// ask makes one poll.
func (r *run) ask(parent context.Context) (*polled, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	silence := time.AfterFunc(pollWait+r.silence, func() { cancel(errSilent) })
	defer silence.Stop()

	r.failures++
	resp, err := r.http.Do(r.request(ctx))
	if err != nil {
		return nil, r.lost(ctx, "asking", err)
	}
	defer resp.Body.Close()
	if err := checkResponse(resp, pollAnswer); err != nil {
		return nil, explain(err, resp)
	}
	r.cursor.groups = resp.Header.Get(headerGroups)
	return r.read(ctx, resp)
}

// read takes the whole answer before any of it is handled: handlers may take
// their time.
func (r *run) read(ctx context.Context, resp *http.Response) (*polled, error) {
	// A character takes six bytes at worst, as \u0000.
	most := 6 * (pollBytes + int64(r.maxBlock()))
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, r.lost(ctx, "reading", err)
	}
	if int64(len(text)) > most {
		return nil, &final{fmt.Errorf("%w (at %d bytes)", ErrEventTooLarge, r.maxBlock())}
	}
	answer := new(polled)
	if json.Unmarshal(text, answer) != nil {
		return nil, r.lost(ctx, "reading", errors.New("the answer is not a poll's"))
	}
	for _, e := range answer.Events {
		if len(e.Data) > r.maxBlock() {
			return nil, &final{fmt.Errorf("%w (at %d bytes)", ErrEventTooLarge, r.maxBlock())}
		}
	}
	return answer, nil
}
