// Package push owns POST /v1/push: an event from a producer to devices that are
// dialled, at once and without a log, and what the producer is told of each. It
// repeats nothing and remembers no event. Its invariant: "delivered" is said only
// when the device has said so, "a repeat is safe" only when nothing was sent, and
// no device waits for another one.
package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"downlink/internal/intake"
	"downlink/internal/inventory"
	"downlink/internal/post"
	"downlink/internal/problem"
)

// Path is where the handler belongs.
const Path = "/v1/push"

// Limits of a request that aren't settings.
const (
	// MaxDevices is how many devices one event may name.
	MaxDevices = 1000
	// perCallMost is how many devices are pushed to at the same time for one
	// request, so that none takes all there is for everybody.
	perCallMost = 256
	// escapeFactor is how much longer a text can be in JSON (\u0000) than it is.
	escapeFactor = 6
	// bodyRest is room for everything in a body that isn't the payload.
	bodyRest = 1 << 20
)

// An Inventory knows the devices.
type Inventory interface {
	Ready() bool
	Lookup(id string) (inventory.Device, bool)
}

// A Poster posts an event to a device; its error is a *post.Failure.
type Poster interface {
	Post(ctx context.Context, d inventory.Device, e post.Event) (*post.Reply, error)
}

// A Sender is whoever sends a request.
type Sender interface {
	// Permit is nil if the sender may send to a device; else a *problem.Document
	// that says what is missing.
	Permit(device string) error
}

type anybody struct{}

func (anybody) Permit(string) error { return nil }

// Options are what the handler is made of. Each field is required unless it says
// otherwise.
type Options struct {
	Inventory Inventory
	Post      Poster
	// MaxEventBytes is the largest payload, in bytes. InFlight is how many pushes
	// there may be at the same time, PerDevice how many to one device. They are
	// asked for each push.
	MaxEventBytes, InFlight, PerDevice func() int
	// Wait is how long a push waits for its device's turn. Zero means 1 s.
	Wait time.Duration
	// BodyTimeout ends a request whose client sends no byte, or takes none of
	// its answer, for so long. Zero means 30 s.
	BodyTimeout time.Duration
	// Sender says who sends a request. Its error, a *problem.Document, is the
	// answer. Nil: everybody may send to every device.
	Sender  func(*http.Request) (Sender, error)
	Logger  *slog.Logger
	Metrics *Metrics
}

// A Handler answers POST /v1/push. Safe for concurrent use.
type Handler struct {
	opts    Options
	metrics *Metrics
	turns   *turns
}

// New makes a handler.
func New(o Options) *Handler {
	if o.Wait <= 0 {
		o.Wait = time.Second
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.Sender == nil {
		o.Sender = func(*http.Request) (Sender, error) { return anybody{}, nil }
	}
	return &Handler{opts: o, metrics: o.Metrics, turns: newTurns(o)}
}

// InFlight is how many pushes are under way.
func (h *Handler) InFlight() int { return h.turns.inFlight() }

// ServeHTTP pushes the request's events and answers with what became of them.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := intake.NewBody(w, r, h.opts.BodyTimeout)
	sender, err := h.opts.Sender(r)
	var form intake.Form
	if err == nil {
		var fault *problem.Document
		if form, fault = intake.FormOf(r); fault != nil {
			err = fault
		}
	}
	switch {
	case err != nil:
		d := asProblem(err)
		if d.Status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", http.MethodPost)
		}
		h.metrics.refused(d)
		problem.Write(w, d)
	case form == intake.Batch:
		h.batch(w, r, body, sender)
	default:
		h.single(w, r, body, sender)
	}
}

// single answers a request with one event.
func (h *Handler) single(w http.ResponseWriter, r *http.Request, body *intake.Body, sender Sender) {
	c, err := h.read(w, r, body, sender)
	if err != nil {
		d := asProblem(err)
		h.metrics.refused(d)
		problem.Write(w, d)
		return
	}
	results := h.push(r.Context(), c)
	// A client may take nothing of its answer.
	_ = body.Conn.SetWriteDeadline(time.Now().Add(h.opts.BodyTimeout))
	if c.list {
		writeList(w, results)
		return
	}
	writeOne(w, results[0])
}

// read takes the body of a request with one event.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, body *intake.Body, sender Sender) (*call, error) {
	key, err := intake.Key(r)
	if err != nil {
		return nil, err
	}
	most := int64(h.maxBody())
	if r.ContentLength > most {
		// Unread, the body could only be drained; the connection goes instead.
		w.Header().Set("Connection", "close")
		return nil, h.bodyTooLarge()
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, io.NopCloser(body), most))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, h.bodyTooLarge()
	}
	if err != nil {
		return nil, body.Fault(err)
	}
	c, err := parse(text, h.opts.MaxEventBytes())
	if err != nil {
		return nil, err
	}
	if err := c.identify(key, 0); err != nil {
		return nil, err
	}
	c.traced(r)
	return c, permit(sender, c)
}

// permit asks for each device, before anything is sent to any.
func permit(s Sender, c *call) error {
	for _, d := range c.devices {
		if err := s.Permit(d); err != nil {
			return err
		}
	}
	return nil
}

// maxBody is how large the body of one event, or a batch's line, may be.
func (h *Handler) maxBody() int { return escapeFactor*h.opts.MaxEventBytes() + bodyRest }

func (h *Handler) bodyTooLarge() *problem.Document {
	return problem.New(problem.BodyTooLarge, fmt.Sprintf("it has more than %d bytes, while an event may have %d", h.maxBody(), h.opts.MaxEventBytes()))
}

func asProblem(err error) *problem.Document {
	if d, ok := errors.AsType[*problem.Document](err); ok {
		return d
	}
	return problem.New(problem.Internal, "the request could not be read")
}
