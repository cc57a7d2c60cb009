package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"downlink/internal/event"
)

// A ControlKind is what an order about a device is: the type of its entry.
type ControlKind string

// The kinds of order.
const (
	Disconnect ControlKind = "disconnect" // end its streams; it may come back
	Revoke     ControlKind = "revoke"     // end its streams and let it in no more
	Restore    ControlKind = "restore"    // let it in again
)

// look is the type of a control entry that is no order about a device.
const look = "look"

// AsksToLook reports whether an entry is there because a break was recorded just
// before it: whoever reads on past it asks the log before anything is handed over.
// Asking without need does no harm.
func AsksToLook(e *event.Event) bool { return e.Type == look && e.Target == event.ControlTarget }

// ControlKinds lists every kind, for metrics and documentation.
func ControlKinds() []ControlKind { return []ControlKind{Disconnect, Revoke, Restore} }

const (
	// MaxControlBytes is how large the payload of a control entry may be,
	// whatever limit events have.
	MaxControlBytes = 4 << 10
	// MaxRetry is the longest time to stay away that a Disconnect can ask for.
	MaxRetry = time.Hour
)

// A Control is an order about a device. It travels as an entry of the device's
// shard, for event.ControlTarget, so that every gateway reads it: for a
// Disconnect that entry is all there is. For the others the entry is only the
// news that the shard's list of revoked devices has changed; what counts is
// the list. So an order that is read late or twice does no harm.
type Control struct {
	Kind   ControlKind
	Device string
	Reason string        // for people; may be empty
	Retry  time.Duration // Disconnect: when to come back, about; 0: as the gateway thinks best
}

// Validate checks an order. The error is an *event.Error for its fields "type",
// "device", "reason" and "retry_ms".
func (c *Control) Validate() error {
	switch c.Kind {
	case Disconnect, Revoke, Restore:
	default:
		return &event.Error{Field: "type", Reason: "is no kind of order"}
	}
	if err := event.ValidateDevice(c.Device); err != nil {
		return err
	}
	if err := event.ValidateReason(c.Reason); err != nil {
		return err
	}
	if c.Retry < 0 || c.Retry > MaxRetry || (c.Retry > 0 && c.Kind != Disconnect) {
		return &event.Error{Field: "retry_ms", Reason: fmt.Sprintf("must be 0 to %d, and is for disconnect only", MaxRetry.Milliseconds())}
	}
	return nil
}

// order is the payload of a control entry. Unknown members are ignored: a newer
// gateway may have more to say.
type order struct {
	Device  string `json:"device"`
	Reason  string `json:"reason,omitempty"`
	RetryMs int64  `json:"retry_ms,omitempty"`
}

// Event is the order as an entry. The order must be valid.
func (c *Control) Event() event.Event {
	payload, err := json.Marshal(order{Device: c.Device, Reason: c.Reason, RetryMs: c.Retry.Milliseconds()})
	if err != nil { // texts and a number don't fail
		panic(err)
	}
	return event.Event{Target: event.ControlTarget, Type: string(c.Kind), Payload: string(payload)}
}

// ReadControl reads the order in a control entry's event. Anybody with access
// to the log can write one: nothing of it is taken unchecked.
func ReadControl(e *event.Event) (Control, error) {
	if len(e.Payload) > MaxControlBytes {
		return Control{}, &event.Error{Field: "payload", Reason: fmt.Sprintf("has %d bytes, allowed are %d", len(e.Payload), MaxControlBytes)}
	}
	if !utf8.ValidString(e.Payload) {
		return Control{}, &event.Error{Field: "payload", Reason: "is not valid UTF-8"}
	}
	var o order
	if err := json.Unmarshal([]byte(e.Payload), &o); err != nil {
		return Control{}, &event.Error{Field: "payload", Reason: "is no JSON object of an order"}
	}
	// A number of milliseconds that overflows as a duration is out of bounds.
	retry := time.Duration(min(max(o.RetryMs, -1), MaxRetry.Milliseconds()+1)) * time.Millisecond
	c := Control{Kind: ControlKind(e.Type), Device: o.Device, Reason: o.Reason, Retry: retry}
	return c, c.Validate()
}

// A Receipt answers an order.
type Receipt struct {
	// ID is of the entry that the order stands in: for a device that is revoked
	// already, of the one that did it. It is the zero ID for one that isn't
	// revoked and is to be restored, or was revoked past our API.
	ID event.ID
	// Changed is false if the list said so already; then nothing was stored.
	Changed bool
}

// A Revocation keeps a device out until it is lifted.
type Revocation struct {
	Device string
	ID     event.ID // of the order's entry; its Ms is the log's time. Zero: written past our API
	Reason string   // may be empty
}

// Since is when it was ordered, by the log's clock; zero if nobody knows.
func (r *Revocation) Since() time.Time {
	if r.ID.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(int64(min(r.ID.Ms, 1<<62))).UTC()
}

// A Revoked is a shard's list of revoked devices, as one atomic look.
type Revoked struct {
	Version ListVersion
	List    []Revocation // in no order
}

// A ListVersion tells two states of a list apart. The zero value is the
// version of a list that was never changed.
type ListVersion struct {
	Born    event.ID // of the first order that changed it
	Last    event.ID // of the last one
	Changes uint64   // orders that changed it
	Devices int      // on the list now
}

// Lost reports whether now can't have come of was by orders alone: the log has
// forgotten some of them. What was written past our API doesn't count as such.
func (was ListVersion) Lost(now ListVersion) bool {
	return was.Changes > 0 &&
		(now.Born != was.Born || now.Changes < was.Changes || now.Changes == was.Changes && now.Last != was.Last)
}

// A Controller carries orders about devices to every gateway, and keeps the
// lists of revoked devices: for as long as the log itself lasts, not only for
// its window. Safe for concurrent use.
type Controller interface {
	// Control stores a valid order in the shard, which must be its device's,
	// and changes the shard's list in the same step. It is durable as an event
	// is. Errors are those of Append; with ErrUnavailable the order may or may
	// not have been stored, and may be repeated.
	Control(ctx context.Context, shard int, order Control) (Receipt, error)
	// Revoked reads a shard's list from the primary.
	Revoked(ctx context.Context, shard int) (Revoked, error)
	// RevokedVersions reads the versions of all lists, in order of shards. It
	// is cheap, so that a change that nobody heard of is noticed.
	RevokedVersions(ctx context.Context) ([]ListVersion, error)
}

// A Claimer gives each name to its first caller. Safe for concurrent use.
type Claimer interface {
	// Claim reports whether this is the first call for the name in the shard
	// within ttl (1 ms or more) of the first one; after it, the name is free
	// again. It is decided in the log, atomically over all gateways. With
	// ErrUnavailable nobody knows: the name may be claimed now, by nobody. What
	// a failover of Redis can lose of events, it can lose of claims.
	Claim(ctx context.Context, shard int, name string, ttl time.Duration) (first bool, err error)
}
