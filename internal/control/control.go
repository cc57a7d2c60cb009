// Package control owns the back end's orders about devices: disconnecting them,
// shutting them out, letting them in again, and listing who is shut out. It
// carries nothing out: an order is stored in the log, and every gateway obeys
// what it reads there, this one too. Its invariant: an order is confirmed only
// when the log has confirmed it.
package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
)

// Where the handlers belong, as http.ServeMux takes it.
const (
	DisconnectPath = "/v1/devices/{device}/disconnect" // POST: Disconnect
	RevokePath     = "/v1/devices/{device}/revoke"     // POST: Revoke; DELETE: Restore
	RevokedPath    = "/v1/revoked"                     // GET: Revoked
)

// Options for a Handler.
type Options struct {
	Log    eventlog.Controller
	Shards int // as in the log
	// Timeout is how long the log may take, and with it how long a caller waits
	// for a 503.
	Timeout time.Duration
	// Caller names who gives an order, for the log line of it. Nil: nobody knows.
	Caller  func(*http.Request) string
	Metrics *Metrics
	Logger  *slog.Logger
}

// A Handler takes orders. Safe for concurrent use.
type Handler struct {
	opts  Options
	cross *http.CrossOriginProtection
}

// New makes the handler.
func New(o Options) *Handler {
	if o.Caller == nil {
		o.Caller = func(*http.Request) string { return "" }
	}
	return &Handler{opts: o, cross: http.NewCrossOriginProtection()}
}

// Disconnect ends a device's streams on every gateway; it may come back.
func (h *Handler) Disconnect(w http.ResponseWriter, r *http.Request) {
	h.order(w, r, eventlog.Disconnect)
}

// Revoke ends a device's streams and lets it in no more.
func (h *Handler) Revoke(w http.ResponseWriter, r *http.Request) { h.order(w, r, eventlog.Revoke) }

// Restore lets a device in again.
func (h *Handler) Restore(w http.ResponseWriter, r *http.Request) { h.order(w, r, eventlog.Restore) }

// An answer says what has become of an order.
type answer struct {
	Device  string    `json:"device"`
	Revoked *bool     `json:"revoked,omitempty"` // how it stands now; a disconnect doesn't know
	Changed bool      `json:"changed"`
	ID      *event.ID `json:"id,omitempty"` // of the order that made it so, if one is known
	Shard   int       `json:"shard"`
}

func (h *Handler) order(w http.ResponseWriter, r *http.Request, kind eventlog.ControlKind) {
	order, fault := h.read(w, r, kind)
	if fault != nil {
		h.opts.Metrics.count(kind, refused)
		problem.Write(w, fault)
		return
	}
	shard := event.Shard(order.Device, h.opts.Shards)
	ctx, cancel := h.patience(r)
	defer cancel()
	receipt, err := h.opts.Log.Control(ctx, shard, order)
	if err != nil {
		h.opts.Metrics.count(kind, failed)
		h.fail(w, err)
		return
	}
	result := done
	if !receipt.Changed {
		result = unchanged
	}
	h.opts.Metrics.count(kind, result)
	h.opts.Logger.Info("an order about a device was given", "order", kind, "device", order.Device,
		"reason", order.Reason, "by", h.opts.Caller(r), "changed", receipt.Changed, "id", receipt.ID)
	a := answer{Device: order.Device, Changed: receipt.Changed, Shard: shard}
	if !receipt.ID.IsZero() {
		a.ID = &receipt.ID
	}
	if kind != eventlog.Disconnect {
		revoked := kind == eventlog.Revoke
		a.Revoked = &revoked
	}
	write(w, a)
}

// patience is the time that the log gets. An order isn't taken back because its
// caller has gone.
func (h *Handler) patience(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), h.opts.Timeout)
}

// A revocation is a line of the list.
type revocation struct {
	Device string     `json:"device"`
	Since  *time.Time `json:"since,omitempty"` // by the log's clock
	ID     *event.ID  `json:"id,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// Revoked lists the devices that are shut out, as the log has them now.
func (h *Handler) Revoked(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.patience(r)
	defer cancel()
	found, err := h.revoked(ctx)
	if err != nil {
		h.fail(w, err)
		return
	}
	list := make([]revocation, len(found))
	for i := range found {
		list[i] = revocation{Device: found[i].Device, Reason: found[i].Reason}
		if since := found[i].Since(); !since.IsZero() {
			list[i].Since, list[i].ID = &since, &found[i].ID
		}
	}
	slices.SortFunc(list, func(a, b revocation) int { return cmp.Compare(a.Device, b.Device) })
	write(w, struct {
		Devices []revocation `json:"devices"`
	}{list})
}

// revoked reads the lists that have something on them.
func (h *Handler) revoked(ctx context.Context) (all []eventlog.Revocation, err error) {
	versions, err := h.opts.Log.RevokedVersions(ctx)
	if err != nil {
		return nil, err
	}
	for shard, v := range versions {
		if v.Devices == 0 {
			continue
		}
		found, err := h.opts.Log.Revoked(ctx, shard)
		if err != nil {
			return nil, err
		}
		all = append(all, found.List...)
	}
	return all, nil
}

func write(w http.ResponseWriter, body any) {
	data, err := json.Marshal(body)
	if err != nil { // a year over 9999: somebody wrote an ID by hand
		problem.Write(w, problem.New(problem.Internal, "the answer could not be encoded"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(data, '\n')) // the client has gone: nobody to tell
}

// fail answers with what the log's error means. The text of an unknown one may
// tell of our inside, and is for whoever runs the gateway.
func (h *Handler) fail(w http.ResponseWriter, err error) {
	var d *problem.Document
	switch {
	case errors.Is(err, eventlog.ErrFull):
		d = problem.New(problem.LogFull, "the log has no room for the order")
	case errors.Is(err, eventlog.ErrNotReplicated):
		d = problem.New(problem.NotReplicated, "the primary has the order, but too few replicas confirmed it in time").
			Advise("Repeat the request after Retry-After seconds; repeating an order is safe.")
	case errors.Is(err, eventlog.ErrUnavailable):
		d = problem.New(problem.LogUnavailable, "it did not answer in time; an order may or may not stand").
			Advise("Repeat the request after Retry-After seconds; repeating an order is safe.")
	case errors.Is(err, eventlog.ErrExhausted):
		d = problem.New(problem.LogExhausted, eventlog.ErrExhausted.Error())
	case errors.Is(err, eventlog.ErrClosed):
		d = problem.New(problem.ShuttingDown, eventlog.ErrClosed.Error())
	default:
		d = problem.New(problem.Internal, "the log failed in an unexpected way")
	}
	h.opts.Logger.Warn("the log could not be asked about devices", "kind", d.Code(), "error", err)
	problem.Write(w, d)
}
