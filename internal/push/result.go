package push

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"downlink/internal/egress"
	"downlink/internal/intake"
	"downlink/internal/post"
	"downlink/internal/problem"
)

// An answer is what a device said.
type answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Body        string `json:"body,omitempty"`
	Base64      string `json:"body_base64,omitempty"` // in Body's place, if it is no text
	Cut         bool   `json:"cut,omitempty"`         // there was, or should have been, more of it
}

// A fault is why an event wasn't delivered to a device.
type fault struct {
	*problem.Document
	Device string       `json:"device,omitempty"`
	Stage  egress.Stage `json:"stage,omitempty"` // that failed on the way
	// Sent is whether the device may have got the event; RepeatSafe, whether a
	// repeat can't be a second one, whatever the device does with keys.
	Sent       bool    `json:"sent"`
	RepeatSafe bool    `json:"repeat_safe"`
	Answer     *answer `json:"answer,omitempty"` // of a device that refused it
}

// A result is what became of an event for one device: Answer, or Error.
type result struct {
	Device string  `json:"device"`
	Answer *answer `json:"answer,omitempty"`
	Error  *fault  `json:"error,omitempty"`
}

// push sends a call's event to its devices and waits for all of them.
func (h *Handler) push(ctx context.Context, c *call) []result {
	results := make([]result, len(c.devices))
	if len(c.devices) == 1 {
		results[0] = h.pushTo(ctx, c.devices[0], &c.event)
		return results
	}
	places := make(chan struct{}, perCallMost)
	var all sync.WaitGroup
	for i, device := range c.devices {
		places <- struct{}{}
		all.Go(func() {
			results[i] = h.pushTo(ctx, device, &c.event)
			<-places
		})
	}
	all.Wait()
	return results
}

// pushTo sends an event to one device.
func (h *Handler) pushTo(ctx context.Context, device string, e *post.Event) result {
	if !h.opts.Inventory.Ready() {
		return h.fail(device, unsent(problem.New(problem.InventoryUnavailable, "the list of devices has not been read since the gateway started")))
	}
	d, known := h.opts.Inventory.Lookup(device)
	if !known {
		return h.fail(device, unsent(problem.New(problem.DeviceUnknown, fmt.Sprintf("%q isn't in the inventory", device))))
	}
	turn, err := h.turns.take(ctx, device)
	if err != nil {
		if ctx.Err() != nil {
			return h.fail(device, gone(&post.Failure{Stage: "", Err: ctx.Err()}))
		}
		return h.fail(device, unsent(asProblem(err)))
	}
	reply, err := h.opts.Post.Post(ctx, d, *e)
	took := time.Since(turn.began)
	failure, _ := errors.AsType[*post.Failure](err)
	turn.done(failure != nil && ctx.Err() == nil)
	switch {
	case failure != nil && ctx.Err() != nil:
		return h.fail(device, gone(failure))
	case failure != nil:
		h.metrics.stage(failure.Stage)
		return h.fail(device, unanswered(failure))
	}
	h.metrics.answered.Observe(took.Seconds())
	said := answerOf(reply)
	if !reply.OK() {
		return h.fail(device, refused(reply, said))
	}
	h.metrics.count(resultDelivered)
	return result{Device: device, Answer: said}
}

func (h *Handler) fail(device string, f *fault) result {
	h.metrics.refused(f.Document)
	f.Device = device
	return result{Device: device, Error: f}
}

// unsent is a fault before anything was tried.
func unsent(d *problem.Document) *fault { return &fault{Document: d, RepeatSafe: true} }

// gone is the fault of a push whose client no longer waits for it; only the log
// of a proxy will ever see it.
func gone(f *post.Failure) *fault {
	return &fault{Document: problem.New(problem.PushAbandoned, "the client has gone"), Stage: f.Stage, Sent: f.Sent, RepeatSafe: !f.Sent}
}

// unanswered says of a device that gave no answer how far it came.
func unanswered(f *post.Failure) *fault {
	out := &fault{Stage: f.Stage, Sent: f.Sent, RepeatSafe: !f.Sent}
	what := f.Err.Error()
	if f.Timeout {
		what = "it took longer than allowed"
	}
	if f.Sent {
		out.Document = problem.New(problem.NoAnswer, fmt.Sprintf("%s: %s; the device may have had the event", f.Stage, what))
	} else {
		out.Document = problem.New(problem.DeviceUnreachable, fmt.Sprintf("%s: %s; nothing was sent", f.Stage, what))
	}
	return out
}

// refused says of a device that it had the event and didn't take it.
func refused(r *post.Reply, said *answer) *fault {
	d := problem.New(problem.DeviceRefused, "it answered "+r.String())
	if r.RetryAfter > 0 {
		d = d.After(int(r.RetryAfter / time.Second))
	}
	return &fault{Document: d, Sent: true, Answer: said}
}

func answerOf(r *post.Reply) *answer {
	a := &answer{Status: r.Status, Cut: r.Cut}
	if utf8.ValidString(r.ContentType) {
		a.ContentType = intake.Clip(r.ContentType)
	}
	body := r.Body
	if r.Cut { // perhaps in the middle of a character
		for n := 0; n < utf8.UTFMax-1 && len(body) > 0 && !utf8.Valid(body); n++ {
			body = body[:len(body)-1]
		}
	}
	if utf8.Valid(body) {
		a.Body = string(body)
	} else {
		a.Base64 = base64.StdEncoding.EncodeToString(r.Body)
	}
	return a
}

// writeOne answers a request for one device.
func writeOne(w http.ResponseWriter, r result) {
	if r.Error == nil {
		writeJSON(w, http.StatusOK, r)
		return
	}
	if r.Error.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(r.Error.RetryAfter))
	}
	problem.WriteAs(w, r.Error.Status, r.Error)
}

// list is the answer for several devices, in the order in which they were named.
type list struct {
	Delivered int      `json:"delivered"`
	Failed    int      `json:"failed"`
	Results   []result `json:"results"`
}

func listOf(results []result) list {
	l := list{Results: results}
	for _, r := range results {
		if r.Error == nil {
			l.Delivered++
		} else {
			l.Failed++
		}
	}
	return l
}

// writeList answers 200 only if every device has taken the event: 207 makes who
// looks at the status alone look at the results.
func writeList(w http.ResponseWriter, results []result) {
	l, status := listOf(results), http.StatusOK
	if l.Failed > 0 {
		status = http.StatusMultiStatus
	}
	writeJSON(w, status, l)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil { // only a fault of the program
		problem.Write(w, problem.New(problem.Internal, "the answer could not be encoded"))
		return
	}
	h := w.Header()
	h.Set("Content-Type", intake.TypeSingle)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff") // what a device says is in it
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client has gone: nobody to tell
}
