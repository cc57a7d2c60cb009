// Package trail owns the memory of what lately happened to devices at this
// gateway: ends, refusals, failed identities. It knows what it is told, decides
// nothing, and asks nobody. Its invariant: it holds a bounded number of entries,
// and who proves nothing displaces only what was never proven.
package trail

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// A Kind is what an entry tells of.
type Kind string

// The kinds.
const (
	Ended   Kind = "ended"   // a stream ended; its Word is a session.EndReason
	Polled  Kind = "polled"  // a poll was answered; its Word is empty, or the reason why it ended early
	Refused Kind = "refused" // a request got nothing; its Word is that of a door.Outcome
)

// An Entry is something that happened to a device, once or several times in a
// row.
type Entry struct {
	Kind    Kind
	Word    string
	Detail  string    // what the device was told, if that says more; the last time
	Address string    // of the peer; the last time
	Since   time.Time // when the stream that ended had begun; the last time
	First   time.Time
	Last    time.Time
	Times   int
}

// Options for a Trail.
type Options struct {
	// Entries is how many are held, both of devices that have proven who they are
	// and of requests that haven't. It is asked at each entry; less than 1 means 1.
	Entries func() int
	Metrics *Metrics
}

// A Trail is such a memory. Safe for concurrent use; a note takes about as long
// as a look into a map, however much is held.
type Trail struct {
	opts Options

	mu     sync.Mutex
	proven book
	// claimed is of devices that a credential names which wasn't proven. The
	// entries of an empty name are of requests that name no device.
	claimed book
}

// New makes an empty trail.
func New(o Options) *Trail {
	return &Trail{opts: o, proven: newBook(), claimed: newBook()}
}

// maxDetail bounds a text that is kept, in bytes.
const maxDetail = 200

// Note adds an entry, whose First, Last and Times are set here. claimed says that
// the device hasn't proven that it is the one; it is empty if none was named.
func (t *Trail) Note(device string, claimed bool, e Entry) {
	now := time.Now()
	e.First, e.Last, e.Times = now, now, 1
	e.Detail = cut(e.Detail)
	most := max(t.opts.Entries(), 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	b, held := &t.proven, t.opts.Metrics.proven
	if claimed || device == "" {
		b, held = &t.claimed, t.opts.Metrics.claimed
	}
	b.note(device, e, most)
	held.Set(float64(b.entries))
}

// cut is a text's beginning.
func cut(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	end := maxDetail
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + "…"
}

// Of is what is remembered of a device, newest first: what happened to the
// device itself, and to requests that only claimed to be the device.
func (t *Trail) Of(device string) (proven, claimed []Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proven.of(device), t.claimed.of(device)
}

// Nameless is what is remembered of requests that named no device, newest first.
func (t *Trail) Nameless() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.claimed.of("")
}
