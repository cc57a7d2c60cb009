// Package eventlog owns the contract of the log: what an entry, a position and
// a page are, what a log can say about a cursor, and the interfaces that the
// embedded log and the Redis log keep. It stores nothing itself. Its invariant:
// a cursor is served only if nothing for its device can be missing (Judge).
package eventlog

import (
	"context"
	"errors"
	"fmt"

	"downlink/internal/event"
)

// Errors that a log's methods wrap. Each text says what to do.
var (
	// ErrUnavailable: nothing is claimed about the call; it may be repeated.
	ErrUnavailable = errors.New("the log can't be reached or didn't answer in time")
	// ErrFull: the log's memory or disk is used up. It wraps ErrUnavailable.
	ErrFull = errors.Join(errors.New("the log is full"), ErrUnavailable)
	// ErrNotReplicated: stored, but not on as many replicas as the log is
	// configured to wait for: a failover could lose it. It wraps ErrUnavailable.
	ErrNotReplicated = errors.Join(errors.New("the replicas did not confirm in time"), ErrUnavailable)
	// ErrConflict: the idempotency key was used for another body.
	ErrConflict = errors.New("the idempotency key was used with another body")
	// ErrExhausted: the shard's last ID is the highest there can be.
	ErrExhausted = errors.New("the shard has issued its highest possible ID; delete its stream to start it again")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
)

// A MismatchError says that a log was created with another setting than the
// one it is opened with. Going on would lose events in silence: the log refuses.
type MismatchError struct {
	Log        string // the directory or server, without secrets
	Setting    string // "shards", "format version", …
	Stored     string // what the log was created with
	Configured string // what this program was started with
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the log %s was created with %s %s, but this program is set to %s; "+
		"start it with the stored value, or use another log", e.Log, e.Setting, e.Stored, e.Configured)
}

// An Entry is an event in the log.
type Entry struct {
	ID    event.ID
	Event event.Event
	// Fault is why the entry can't be delivered as it is; empty for a good one.
	// A faulty entry still moves positions. With FaultTooLarge Event.Target is
	// set and the payload is dropped; with every other fault of a log Event is
	// empty. FaultShard is the tail's finding: a log doesn't look at devices.
	Fault Fault
}

// A Fault is the kind of a malformed entry. Raw writers produce them; they are
// counted, logged once per kind and skipped, and never stop a shard.
type Fault string

// The kinds of fault.
const (
	FaultNoField  Fault = "missing-field" // dev, type or payload is missing
	FaultDevice   Fault = "bad-device"
	FaultType     Fault = "bad-type"
	FaultPayload  Fault = "bad-payload" // not UTF-8
	FaultOptional Fault = "bad-optional-field"
	FaultTooLarge Fault = "too-large"
	FaultControl  Fault = "bad-control" // for the gateways, and they can't read it
	FaultShard    Fault = "wrong-shard" // the device lives in another shard
)

// Faults lists every kind, for metrics and documentation.
func Faults() []Fault {
	return []Fault{FaultNoField, FaultDevice, FaultType, FaultPayload, FaultOptional, FaultTooLarge, FaultControl, FaultShard}
}

// A Batch is what one read found in one shard, in order of ID.
type Batch struct {
	Shard   int
	Entries []Entry
	// Drained says that the shard held no more entries when the log was read.
	// A batch without entries isn't: nobody has looked, for want of room.
	Drained bool
}

// A Page is a part of one shard, in order of ID.
type Page struct {
	Entries []Entry
	// Through is the ID up to which the page is complete: the asked upper end
	// when everything fitted, else the last entry's ID.
	Through event.ID
}

// An Append is one request's events for one shard.
type Append struct {
	Shard  int
	Events []event.Event // validated, all of this shard, stored in this order
	Once   *Once         // nil: not idempotent
}

// Once makes an Append idempotent: the same Scope and Key inside the window
// return the same IDs and store nothing, as long as the entries are still
// there; what is missing of them is stored again.
type Once struct {
	Scope       string // the publisher; keys of different publishers never meet
	Key         string
	Fingerprint string // of the whole request; another one under the same key is ErrConflict
}

// A Result answers one Append.
type Result struct {
	IDs      []event.ID // one for each event; the zero ID where it wasn't stored
	Repeated bool       // everything had been stored by an earlier call
	Err      error      // nil only if all IDs stand
}

// NewResults makes a result for each Append, with a zero ID for each event.
func NewResults(batch []Append) []Result {
	events := 0
	for i := range batch {
		events += len(batch[i].Events)
	}
	results, ids := make([]Result, len(batch)), make([]event.ID, events)
	for i := range batch {
		n := len(batch[i].Events)
		results[i].IDs, ids = ids[:n:n], ids[n:]
	}
	return results
}

// A Question asks whether a cursor may be served.
type Question struct {
	Cursor event.ID
	// Targets are the device, Broadcast and the device's groups (with prefix).
	Targets []string
}

// An Inspection is what the watchdog learns of one shard.
type Inspection struct {
	State State
	// Reason is what State.Judge says of the asked position, with no notes:
	// empty while whoever had read up to it can go on.
	Reason event.Reason
	// Lost says, with LogRewound, that the position itself is evidence: an entry
	// that was read there, and that the log has neither kept nor swept. Else it is
	// only in doubt by what is recorded already.
	Lost bool
	// Added counts the entries that the shard ever got, of the same look. Only
	// differences mean something, between inspections of one record (Founded);
	// what the log itself adds and removes for its record may count too.
	Added uint64
}

// A SweepReport says what one call of Sweep did.
type SweepReport struct {
	Removed int  // entries removed by this call
	More    bool // more is due already; call again
	// Foreign counts the entries that were found to be removed by someone else.
	Foreign uint64
	Pruned  int // notes older than NotesKept that were dropped
}

// Recent is the caller's memory of the log, which spares Sweep from reading
// what is due. It must be safe for concurrent use and must not block for long.
type Recent interface {
	// Notes gives, for the entries of a shard in (after, upTo], the highest ID
	// for each target and the number of entries, faulty ones included. ok is
	// false if it doesn't hold all of them.
	Notes(shard int, after, upTo event.ID) (notes map[string]event.ID, entries int, ok bool)
}

// An Appender stores events. Safe for concurrent use.
type Appender interface {
	// Append stores each Append's events, those of one shard in the order of
	// the batch; requests of different shards fail and succeed apart. It answers within ctx. A nil Err means stored as
	// durably as the log is configured to. With ErrUnavailable an event may
	// or may not have been stored.
	Append(ctx context.Context, batch []Append) []Result
}

// A Tailer feeds the tail and its watchdog. Each method may be called
// concurrently, Read once at a time for a group.
type Tailer interface {
	// Groups lists which shards one Read serves, each shard in one group.
	Groups() [][]int
	// Read waits until a shard of the group holds entries after its position
	// and returns them; after[i] belongs to Groups()[group][i] and is always a
	// concrete ID. It returns an empty result when nothing came for a while,
	// and ErrUnavailable when the log can't be read. Only shards with entries
	// appear, each once, and those that weren't looked at. The result is bounded
	// in bytes, but for one entry. The caller owns it.
	Read(ctx context.Context, group int, after []event.ID) ([]Batch, error)
	// Inspect asks the primary, over another connection than Read's, how each
	// shard of the group stands to a position. It founds the record of a
	// shard that has none.
	Inspect(ctx context.Context, group int, positions []event.ID) ([]Inspection, error)
	// Suspect records that a position which a gateway had reached is gone:
	// for every gateway, cursors up to reach are in doubt from now on. The
	// shard gets a new head that no device can have: one that stands at the
	// old head may have lost what came after it. What is known already changes
	// nothing, unless it may have been stored after it became known: then whoever
	// was told has to be told again. It returns the state after that.
	Suspect(ctx context.Context, shard int, reach event.ID) (State, error)
}

// A Store answers for the past of a shard. Safe for concurrent use.
type Store interface {
	// Range reads entries in (after, upTo], oldest first, stopping near
	// maxBytes (but never before the first entry).
	Range(ctx context.Context, shard int, after, upTo event.ID, maxBytes int) (Page, error)
	// Judge answers each question with the reason for a resync, or with the
	// empty reason, as one atomic look at the primary; State is of the same look.
	Judge(ctx context.Context, shard int, questions []Question) ([]event.Reason, State, error)
}

// A Sweeper removes what is older than the window, in small steps.
type Sweeper interface {
	// Sweep does one step on a shard; recent may be nil. Any gateway may call
	// it at any time, several at once too.
	Sweep(ctx context.Context, shard int, recent Recent) (SweepReport, error)
}

// A Log is everything together.
type Log interface {
	Appender
	Tailer
	Store
	Sweeper
	Controller
	Claimer
	Positioner
	// Shards is the number of shards, fixed when the log was created.
	Shards() int
	// Close ends every call and frees what the log holds. Calls after it
	// return ErrClosed.
	Close() error
}
