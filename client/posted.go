package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"downlink/internal/event"
	"downlink/internal/frame"
)

// A Sender is the gateway that an event came from.
type Sender struct {
	Member     string // its name
	Generation uint64 // of its ownership; 0 if it has none
}

type senderKey struct{}

func withSender(ctx context.Context, s Sender) context.Context {
	return context.WithValue(ctx, senderKey{}, s)
}

// SenderOf is the gateway that a Receiver's handler was called for, by the
// context that it was called with.
func SenderOf(ctx context.Context) Sender {
	s, _ := ctx.Value(senderKey{}).(Sender)
	return s
}

// status tells of a change, one at a time.
func (r *Receiver) status(s Status) {
	if r.desk.handler.Status == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	r.desk.handler.Status(s)
}

// post takes one event by POST: 204 once it is finished, now or earlier.
func (r *Receiver) post(w http.ResponseWriter, req *http.Request, generation uint64) {
	if highest, ok := r.admit(generation, nil); !ok {
		refuseOlder(w, highest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(r.opts.MaxEventBytes)))
	if err != nil {
		code := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "the event can't be read: "+http.StatusText(code), code)
		return
	}
	if r.begin(req.Context()) != nil {
		return // nobody waits for the answer any more
	}
	defer r.end()
	// A newer owner may have come while this one waited.
	if highest, ok := r.admit(generation, nil); !ok {
		refuseOlder(w, highest)
		return
	}
	if r.ctx.Err() != nil {
		http.Error(w, "the device is shutting down", http.StatusServiceUnavailable)
		return
	}
	r.notice(generation)
	ctx := withSender(r.ctx, Sender{req.Header.Get(headerMember), generation})
	wait, err := r.posted(ctx, postedEvent(req.Header, string(body)))
	switch {
	case wait > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		http.Error(w, "the device fetches its state later", http.StatusServiceUnavailable)
	case err != nil:
		r.status(Status{Err: err})
		http.Error(w, "the device could not handle the event", http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// postedEvent reads an event from a POST.
func postedEvent(h http.Header, body string) Event {
	e := Event{ID: h.Get(headerEventID), Type: h.Get(headerEventType), Data: body, Key: h.Get(headerKey)}
	if plain, err := url.PathUnescape(e.Type); err == nil {
		e.Type = plain
	}
	if e.Type == "" {
		e.Type = "message"
	}
	return e
}

// posted deals with an event that came by POST. With a wait it is to be sent
// again after that. The caller has the turn.
func (r *Receiver) posted(ctx context.Context, e Event) (wait time.Duration, err error) {
	switch {
	case e.ID == "": // pushed past the log: its key is all there is to know it by
		if r.keys.has(e.Key) {
			return 0, nil
		}
		if err := r.desk.handle(ctx, e); err != nil {
			return 0, err
		}
		r.keys.add(e.Key)
		return 0, nil
	case e.Type == event.ResyncType:
		return r.postedResync(ctx, e)
	}
	return 0, r.desk.take(ctx, ctx, frame.Event{ID: e.ID, HasID: true, Type: e.Type, Data: e.Data})
}

// postedResync fetches the state when it is time. The gateway's request doesn't
// wait for that: it is repeated anyway, and says the same each time.
func (r *Receiver) postedResync(ctx context.Context, e Event) (wait time.Duration, err error) {
	told := frame.ParseResync(e.Data)
	if r.due.id != e.ID {
		r.due = resyncDue{e.ID, time.Now().Add(told.After)}
	}
	if wait := time.Until(r.due.at); wait > 0 && r.desk.handler.Resync != nil {
		return wait, nil
	}
	if r.desk.handler.Resync != nil {
		if err := r.desk.handler.Resync(ctx, Resync{ID: e.ID, Reason: string(told.Reason)}); err != nil {
			return 0, err
		}
	}
	r.due = resyncDue{}
	return 0, r.desk.cursor.commit(e.ID)
}
