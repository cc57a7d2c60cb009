// Package publish owns POST /v1/events: what a producer may send, in which
// order it is stored, and what it is answered. It knows the log only as an
// eventlog.Appender, and devices not at all. Its invariant: an ID is answered
// only for an event that the log has confirmed.
package publish

import (
	"bufio"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/intake"
	"downlink/internal/problem"
)

// Path is where the handler belongs.
const Path = "/v1/events"

// Limits of a request that aren't settings, because no device depends on them.
const (
	// MaxDevices is how many devices one event may name.
	MaxDevices = 1000
	// maxCopies bounds devices times payload, in bytes: the log stores each copy.
	maxCopies = 64 << 20
	// escapeFactor is how much longer a text can be in JSON (\u0000) than as stored.
	escapeFactor = 6
	// bodyRest is room for everything in a body that isn't the payload.
	bodyRest = 1 << 20
	// What a batch stores in one go: lines, entries (a broadcast makes many),
	// bytes of payload.
	batchLines   = 512
	batchEntries = 4096
	batchBytes   = 1 << 20
)

// IdempotencyHeader carries a request's idempotency key; ReplayedHeader says
// that the answer repeats an earlier one and nothing was stored.
const (
	IdempotencyHeader = intake.KeyHeader
	ReplayedHeader    = "Idempotent-Replayed"
	// SignalHeader names the governor's signal by which a request was refused.
	SignalHeader = "Downlink-Signal"
)

// Options are what the handler is made of. Each field is required unless it
// says otherwise.
type Options struct {
	// Log stores the events. Appends of one shard in one batch are stored in
	// the order of the slice.
	Log    eventlog.Appender
	Shards int // as in the log
	// MaxEventBytes is the largest payload, in bytes; asked for each message.
	MaxEventBytes func() int
	// PublisherRate and TargetRate are entries a second that one publisher, and
	// one addressee, may have stored; asked for each message. Nil, or 0: any
	// number.
	PublisherRate, TargetRate func() int
	// Rate is entries a second that all publishers together may have stored; Nil, or
	// 0: any number. Because says why it is less than is configured. Nil: it isn't.
	Rate    func() int
	Because func() Cause
	// AppendTimeout is how long the log may take for one append, and with it
	// how long a publisher waits for a 503. Zero means 5 s.
	AppendTimeout time.Duration
	// BodyTimeout ends a request whose client sends no byte, or takes none of
	// its answer, for so long. Zero means 30 s.
	BodyTimeout time.Duration
	// Sender says who sends a request. Its error, a *problem.Document, is the
	// answer. Nil: everybody may send to everybody, as one and the same.
	Sender  func(*http.Request) (Sender, error)
	Logger  *slog.Logger
	Metrics *Metrics
}

// A Sender is whoever sends a request.
type Sender interface {
	// Name is the scope of idempotency keys.
	Name() string
	// Permit is nil if the sender may send to a device, a group or everybody;
	// else a *problem.Document that says what is missing.
	Permit(target string) error
}

// anybody is the sender where nobody is told from others.
type anybody struct{}

func (anybody) Name() string        { return "" }
func (anybody) Permit(string) error { return nil }

// A Handler answers POST /v1/events. Safe for concurrent use.
type Handler struct {
	opts    Options
	metrics *Metrics
	rates   *rates

	stored   atomic.Uint64 // entries
	asked    atomic.Uint64 // entries, before any rate was asked
	patience patience
	texts    sync.Pool // of *[]byte, for a single request's body and answer
	readers  sync.Pool // of *bufio.Reader, for a batch's lines
	troubles troubles
}

// New makes a handler.
func New(o Options) *Handler {
	if o.AppendTimeout == 0 {
		o.AppendTimeout = 5 * time.Second
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.Sender == nil {
		o.Sender = func(*http.Request) (Sender, error) { return anybody{}, nil }
	}
	return &Handler{
		opts:     o,
		metrics:  o.Metrics,
		rates:    newRates(o),
		patience: patience{limit: o.AppendTimeout},
		texts:    sync.Pool{New: func() any { return new([]byte) }},
		readers:  sync.Pool{New: func() any { return bufio.NewReaderSize(nil, intake.LinesBuffer) }},
	}
}

// Stored is how many entries the log has confirmed since the start.
func (h *Handler) Stored() uint64 { return h.stored.Load() }

// Asked is how many entries were to be stored since the start, whatever became of
// them; what is repeated counts again.
func (h *Handler) Asked() uint64 { return h.asked.Load() }

func (h *Handler) ask(m *message) {
	entries, _ := cost(m, h.opts.Shards)
	h.asked.Add(uint64(entries)) //nolint:gosec // a count
}

// ServeHTTP stores the request's events and answers with their IDs.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h.metrics.inFlight.Inc()
	defer h.metrics.inFlight.Dec()

	body := intake.NewBody(w, r, h.opts.BodyTimeout)
	sender, form, fault := h.accept(r)
	defer func() { h.metrics.duration[form].Observe(time.Since(start).Seconds()) }()
	switch {
	case fault != nil:
		if fault.Status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", http.MethodPost)
		}
		h.metrics.count(fault)
		problem.Write(w, fault)
	case form == intake.Batch:
		h.batch(w, r, body, sender)
	default:
		h.single(w, r, body, sender)
	}
}

// accept says who sends a request, and in which form, before it is read.
func (h *Handler) accept(r *http.Request) (Sender, intake.Form, *problem.Document) {
	sender, err := h.opts.Sender(r)
	if err != nil {
		return nil, intake.Unknown, asProblem(err)
	}
	form, fault := intake.FormOf(r)
	return sender, form, fault
}

// permit asks for each target of a message, before any of it is stored.
func permit(s Sender, m *message) error {
	for _, target := range m.targets {
		if err := s.Permit(target); err != nil {
			return err
		}
	}
	return nil
}

// maxBody is how large the body of one event, or a batch's line, may be.
func (h *Handler) maxBody() int { return escapeFactor*h.opts.MaxEventBytes() + bodyRest }

// append stores a plan's events.
func (h *Handler) append(p *plan) []eventlog.Result {
	return h.opts.Log.Append(h.patience.context(), p.appends)
}

// logTrouble logs what no publisher can mend.
func (h *Handler) logTrouble(o outcome) {
	if o.cause != nil {
		h.troubles.log(h.opts.Logger, o.fault.Code(), o.cause)
	}
}
