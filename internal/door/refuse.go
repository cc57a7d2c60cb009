package door

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"downlink/internal/backoff"
)

// A Refusal is why a device isn't served now although its request is in order:
// the same word in header, comment, metric and documentation.
type Refusal string

// The refusals.
const (
	RefusedTooManyStreams Refusal = "streams_per_device"
	RefusedDraining       Refusal = "draining"
	RefusedStarting       Refusal = "starting"            // the log hasn't been reached yet
	RefusedNoKeys         Refusal = "keys_unavailable"    // the keys for tokens haven't been fetched yet
	RefusedNoCRL          Refusal = "revocation_unknown"  // the certificate's issuer has no recent revocation list
	RefusedNoTickets      Refusal = "tickets_unavailable" // whether the ticket was used can't be known now

	// These have the names of the limits that they come from.
	RefusedFull           Refusal = "max_connections"
	RefusedAddressFull    Refusal = "connections_per_address"
	RefusedTooFast        Refusal = "accept_rate"
	RefusedAddressTooFast Refusal = "accept_rate_per_address"
	RefusedNoDescriptors  Refusal = "descriptors" // the process has no file descriptor to spare
)

// Refusals lists every refusal, for metrics and documentation.
func Refusals() []Refusal {
	return []Refusal{
		RefusedTooManyStreams, RefusedDraining, RefusedStarting, RefusedNoKeys, RefusedNoCRL, RefusedNoTickets,
		RefusedFull, RefusedAddressFull, RefusedTooFast, RefusedAddressTooFast, RefusedNoDescriptors,
	}
}

// A RefusedError is a request that can't be served as it is.
type RefusedError struct {
	Status int
	Reason string // what is wrong and what to do
}

func (e *RefusedError) Error() string { return e.Reason }

// A No is why a request gets nothing now. The zero No is none.
type No struct {
	Why   Refusal
	Retry time.Duration // after which to come back
	// Signal is the one by which the governor refuses, and Detail says it in a
	// sentence, for people who ask later; both are empty if it isn't its doing.
	Signal, Detail string
}

// maxHeld is how many refusals are held back at a time; more go out at once.
const maxHeld = 1000

// holdFor is how long a refusal is held back, jittered by half. A gateway that
// refuses at once looks like the fastest one to a load balancer.
const holdFor = 500 * time.Millisecond

// Refuse says "come back later" to a device, in the language that the client
// speaks; the device is empty if nobody knows it.
func (d *Door) Refuse(w http.ResponseWriter, r *http.Request, as Dialect, device string, why Refusal) {
	d.note(r, Outcome{Device: device, Word: string(why)})
	d.later(w, r, as, No{Why: why, Retry: d.retry()})
}

func (d *Door) retry() time.Duration { return backoff.Jitter(d.opts.Retry, 0.5) }

// later refuses a request for a while.
func (d *Door) later(w http.ResponseWriter, r *http.Request, as Dialect, no No) {
	d.opts.Metrics.refused(no.Why)
	d.hold(r)
	h := w.Header()
	h.Set("Downlink-Refused", string(no.Why))
	if no.Signal != "" {
		h.Set("Downlink-Signal", no.Signal)
	}
	h.Set("Connection", "close")
	if as.Later == nil || r.Header.Get("Downlink-Client") != "" {
		h.Set("Retry-After", strconv.Itoa(max(1, int(no.Retry.Round(time.Second)/time.Second))))
		as.error(w, "refused: "+string(no.Why), http.StatusServiceUnavailable)
		return
	}
	as.Later(w, no.Retry, no.Why)
}

func (d *Door) hold(r *http.Request) {
	select {
	case d.held <- struct{}{}:
		defer func() { <-d.held }()
	default:
		return
	}
	select {
	case <-r.Context().Done():
	case <-time.After(backoff.Jitter(holdFor, 0.5)):
	}
}

// Reject says what is wrong with a request, finally: err is a *RefusedError, or
// means status 400.
func (d *Door) Reject(w http.ResponseWriter, r *http.Request, as Dialect, device string, err error) {
	d.note(r, Outcome{Device: device, Word: Rejected, Detail: err.Error()})
	status := http.StatusBadRequest
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		status = refused.Status
	}
	d.opts.Metrics.Rejected.Inc()
	as.error(w, err.Error(), status)
}
