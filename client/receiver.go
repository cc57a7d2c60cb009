package client

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Headers of a gateway that dials (docs/protocol.md).
const (
	headerDevice     = "Downlink-Device"
	headerMember     = "Downlink-Member"
	headerGeneration = "Downlink-Generation"
	headerEventID    = "Downlink-Id"
	headerEventType  = "Downlink-Event"
	headerKey        = "Idempotency-Key"
)

// A Receiver is a device's end where gateways connect to devices and not the
// other way round: an http.Handler for the URL that the gateways' inventory has
// for the device. It takes both ways of delivery, a WebSocket and POST, under
// the rules of Client: events one at a time, in order, each committed after the
// handler has finished it.
//
// It tells an owner of the past from the present one: what dials with a lower
// generation than it has seen is refused, and what it had accepted before is
// closed when a newer one comes. So at no time does it take events from two
// owners. Gateways that send no generation (owner "static") may be connected
// side by side; what a second one brings again is dropped by its ID.
//
// Make one with NewReceiver, and Close it.
type Receiver struct {
	opts ReceiverOptions
	// turn is held by who uses desk: one frame is dealt with at a time.
	turn chan struct{}
	desk desk
	due  resyncDue // guarded by turn
	keys recent    // guarded by turn

	ctx     context.Context // of the handlers; ends with Close
	stop    context.CancelCauseFunc
	serving sync.WaitGroup
	telling sync.Mutex // one call of the handler's Status at a time

	mu         sync.Mutex
	generation uint64             // the highest that dialled
	links      map[*link]struct{} // that are accepted and haven't been left
	closed     bool
}

// ReceiverOptions say what a Receiver accepts.
type ReceiverOptions struct {
	// Device is the device's ID; what is meant for another one is refused. Empty
	// takes whatever comes, for a process that has one device only.
	Device string
	// Token is what a gateway has to present as "Authorization: Bearer …". Empty
	// accepts everybody who reaches the URL.
	Token string
	// Cursors keeps the cursor and the highest generation; nil keeps them only as
	// long as the Receiver lives.
	Cursors Store
	// Commits tells the gateway how far the device has come. It keeps that in the
	// log, and goes on from there where the device has no cursor: for devices that
	// can't store one.
	Commits bool
	// Earliest asks a gateway, if there is no cursor yet, for all that its window
	// still holds instead of a resync.
	Earliest bool
	// MaxEventBytes bounds one event in memory; 0 means DefaultMaxEventBytes. A
	// larger one isn't taken: the gateway tries again until it leaves the window.
	MaxEventBytes int
}

// Why a Receiver leaves a connection.
var (
	errSuperseded     = errors.New("a newer connection has taken its place")
	errReceiverClosed = errors.New("client: the receiver is closed")
)

// NewReceiver makes a Receiver. Handler.Event is required; its error refuses
// the event, which then comes again. Handler.Status tells when a WebSocket
// begins and ends; with POST nothing does.
func NewReceiver(o ReceiverOptions, h Handler) (*Receiver, error) {
	if h.Event == nil {
		return nil, errHandler
	}
	if headerSafe(o.Token) != o.Token {
		return nil, errToken
	}
	if o.MaxEventBytes <= 0 {
		o.MaxEventBytes = DefaultMaxEventBytes
	}
	cursor, err := newKeeper(o.Cursors)
	if err != nil {
		return nil, err
	}
	cursor.groups = cursor.now.Groups
	r := &Receiver{
		opts: o, turn: make(chan struct{}, 1), desk: desk{h, cursor},
		generation: cursor.now.Generation, links: make(map[*link]struct{}),
	}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	return r, nil
}

// Close ends the connections, cancels the context of a handler that runs, waits
// for it, and saves the cursor. What comes afterwards is answered 503.
func (r *Receiver) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop(errReceiverClosed)
	r.serving.Wait()
	return r.desk.cursor.flush()
}

// ServeHTTP implements http.Handler: a WebSocket or one POST.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		http.Error(w, "the device is shutting down", http.StatusServiceUnavailable)
		return
	}
	r.serving.Add(1)
	r.mu.Unlock()
	defer r.serving.Done()

	if code, text := r.refusal(req); code != 0 {
		http.Error(w, text, code)
		return
	}
	generation, err := parseGeneration(req.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case req.Method == http.MethodPost:
		r.post(w, req, generation)
	case req.Method == http.MethodGet && strings.EqualFold(req.Header.Get("Upgrade"), "websocket"):
		r.websocket(w, req, generation)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "this is a device: a gateway may POST to it or open a WebSocket", http.StatusMethodNotAllowed)
	}
}

// refusal is the status and the text for who may not, or means another device.
func (r *Receiver) refusal(req *http.Request) (code int, text string) {
	if r.opts.Token != "" {
		scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(r.opts.Token)) != 1 {
			return http.StatusUnauthorized, "the device doesn't accept this credential"
		}
	}
	if asked := req.Header.Get(headerDevice); r.opts.Device != "" && asked != r.opts.Device {
		return http.StatusMisdirectedRequest, "another device lives here"
	}
	return 0, ""
}

var errGeneration = errors.New(headerGeneration + " must be a number from 1 to 2^64-1, without leading zeros")

// parseGeneration is 0 where no generation was sent.
func parseGeneration(h http.Header) (uint64, error) {
	values := h.Values(headerGeneration)
	if len(values) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil || n == 0 || len(values) > 1 || strconv.FormatUint(n, 10) != values[0] {
		return 0, errGeneration
	}
	return n, nil
}

// admit takes an owner's generation, and leaves the connections that it takes
// the place of. It reports the highest generation, and false if that is another
// owner's, or the link was left itself.
func (r *Receiver) admit(generation uint64, l *link) (highest uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if generation > 0 && generation < r.generation || l != nil && l.ctx.Err() != nil {
		return r.generation, false
	}
	r.generation = max(r.generation, generation)
	for old := range r.links {
		if old != l && old.gives(generation, l) {
			old.leave(errSuperseded)
			delete(r.links, old)
		}
	}
	if l != nil {
		l.generation = generation
		r.links[l] = struct{}{}
	}
	return r.generation, true
}

func (r *Receiver) generationOf(l *link) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.generation
}

func (r *Receiver) forget(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// begin waits for the turn; end gives it back.
func (r *Receiver) begin(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		r.end()
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

func (r *Receiver) end() { <-r.turn }

// notice keeps a generation with the cursor. The caller has the turn.
func (r *Receiver) notice(generation uint64) {
	r.desk.cursor.now.Generation = max(r.desk.cursor.now.Generation, generation)
}

// A resyncDue is when the state may be fetched for a resync that comes by POST,
// and again for as long as it isn't done.
type resyncDue struct {
	id string
	at time.Time
}

// recentKeys is how many pushed events a Receiver recognises when they come again.
const recentKeys = 1000

// recent remembers the last keys. The zero value remembers none.
type recent struct {
	known map[string]struct{}
	order []string
	next  int
}

func (k *recent) has(key string) bool {
	_, ok := k.known[key]
	return ok
}

func (k *recent) add(key string) {
	if key == "" || k.has(key) {
		return
	}
	if k.known == nil {
		k.known = make(map[string]struct{})
	}
	if len(k.order) < recentKeys {
		k.order = append(k.order, key)
	} else {
		delete(k.known, k.order[k.next])
		k.order[k.next] = key
		k.next = (k.next + 1) % recentKeys
	}
	k.known[key] = struct{}{}
}
