// Package door owns what is decided before a device gets anything: who asks,
// whether it may, where it wants to begin, and how "no" is said. It opens no
// session and sends no event. Its invariant: whoever passes is identified, and
// a cursor is never a reason for an error.
package door

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"downlink/internal/shard"
)

// Options for a Door.
type Options struct {
	// Identify says who asks. An error is shown to the client as it is: a
	// *LaterError as a refusal, an *UnauthorizedError or *RefusedError with its
	// status, any other with 400.
	Identify func(*http.Request) (Identity, error)
	// Revoked reports whether a device was shut out until further notice. Nil:
	// none is.
	Revoked func(device string) bool
	// Approach is asked first, while nobody knows who asks, and Admit last. Nil:
	// everybody is welcome.
	Approach func(*http.Request) No
	Admit    func(*http.Request, Pass) No
	// Note is told of every request that gets nothing. Nil: nobody is.
	Note func(*http.Request, Outcome)
	// Held is how many refusals are held back at a time; more go out at once.
	// 0 means 1,000, and so does more.
	Held    int
	Retry   time.Duration // base of the time after which a client comes back that was refused for another reason, jittered by half
	Metrics *Metrics
}

// A Dialect is how an endpoint speaks.
type Dialect struct {
	Media string // what it sends; a request's Accept must allow it
	// Later says "come back after this time" with status 200, to a client that
	// takes every other status as final. Nil: the endpoint has no such clients.
	Later func(w http.ResponseWriter, retry time.Duration, why Refusal)
	// Error writes an answer that isn't what was asked for, as http.Error does,
	// which is meant by nil.
	Error func(w http.ResponseWriter, text string, status int)
}

func (as Dialect) error(w http.ResponseWriter, text string, status int) {
	if as.Error == nil {
		http.Error(w, text, status)
		return
	}
	as.Error(w, text, status)
}

// A Door lets requests of devices pass. Safe for concurrent use.
type Door struct {
	opts Options
	held chan struct{} // a place for each refusal that is held back
}

// New makes a door.
func New(o Options) *Door {
	if o.Held <= 0 {
		o.Held = maxHeld
	}
	return &Door{opts: o, held: make(chan struct{}, min(o.Held, maxHeld))}
}

// A Pass is a request that may have what it asks for.
type Pass struct {
	Identity
	Start shard.Start
}

// Enter lets a request pass, or answers it. What it sets in the header of the
// answer belongs to both.
func (d *Door) Enter(w http.ResponseWriter, r *http.Request, as Dialect) (p Pass, ok bool) {
	if !d.acceptable(w, r, as) {
		return Pass{}, false
	}
	if d.opts.Approach != nil {
		if no := d.opts.Approach(r); no.Why != "" {
			d.note(r, Outcome{Word: string(no.Why), Detail: no.Detail})
			d.later(w, r, as, no)
			return Pass{}, false
		}
	}
	id, err := d.opts.Identify(r)
	if err != nil {
		d.unidentified(w, r, as, err)
		return Pass{}, false
	}
	if d.opts.Revoked != nil && d.opts.Revoked(id.Device) {
		d.opts.Metrics.Revoked.Inc()
		d.note(r, Outcome{Device: id.Device, Word: Revoked})
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent) // it stops an EventSource for good
		return Pass{}, false
	}
	start, err := startOf(r, id.Groups)
	if err != nil {
		d.Reject(w, r, as, id.Device, err)
		return Pass{}, false
	}
	if d.opts.Admit != nil {
		if no := d.opts.Admit(r, Pass{id, start}); no.Why != "" {
			d.note(r, Outcome{Device: id.Device, Word: string(no.Why), Detail: no.Detail})
			d.later(w, r, as, no)
			return Pass{}, false
		}
	}
	return d.redeem(w, r, as, Pass{id, start})
}

// redeem uses up what lets in once. A request that holds nothing uses up
// nothing.
func (d *Door) redeem(w http.ResponseWriter, r *http.Request, as Dialect, p Pass) (Pass, bool) {
	if p.Redeem == nil || r.Method == http.MethodHead {
		return p, true
	}
	id, cookie, err := p.Redeem(r.Context())
	if err == nil {
		p.Start, err = startOf(r, id.Groups) // they may be others
	}
	if err != nil {
		d.unidentified(w, r, as, err)
		return Pass{}, false
	}
	if cookie != "" {
		w.Header().Set("Set-Cookie", cookie)
	}
	p.Identity = id
	return p, true
}

const allowed = "GET, HEAD, OPTIONS"

// acceptable settles everything that can't become an answer, whoever asks.
func (d *Door) acceptable(w http.ResponseWriter, r *http.Request, as Dialect) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		w.Header().Set("Allow", allowed)
		w.WriteHeader(http.StatusNoContent)
		return false
	default:
		w.Header().Set("Allow", allowed)
		d.Reject(w, r, as, "", &RefusedError{http.StatusMethodNotAllowed, "events are read with GET; publish on the back-end listener"})
		return false
	}
	if !readable(r.URL.RawQuery) {
		d.Reject(w, r, as, "", &RefusedError{http.StatusBadRequest, "the URL's query can't be read: write % as %25 and ; as %3B"})
		return false
	}
	if !accepts(r.Header.Values("Accept"), as.Media) {
		d.Reject(w, r, as, "", &RefusedError{http.StatusNotAcceptable, "this endpoint sends " + as.Media + " only; ask for it in Accept, or leave Accept out"})
		return false
	}
	if r.ContentLength != 0 && !settleBody(w, r) {
		w.Header().Set("Connection", "close")
		d.Reject(w, r, as, "", &RefusedError{http.StatusRequestEntityTooLarge, "a GET for events has no body"})
		return false
	}
	return true
}

// maxBody is how much of a body that a GET shouldn't have is read and thrown
// away, and for how long. An unread body would hide a hang-up.
const (
	maxBody     = 4 << 10
	bodyTimeout = 2 * time.Second
)

// settleBody reads away a small body within a short while.
func settleBody(w http.ResponseWriter, r *http.Request) bool {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
		return false
	}
	n, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxBody+1))
	return err == nil && n <= maxBody && rc.SetReadDeadline(time.Time{}) == nil
}

// accepts reports whether an Accept header allows a media type (RFC 9110
// §12.5.1). The most specific range decides.
func accepts(values []string, media string) bool {
	list := strings.Join(values, ",")
	if list == "" {
		return true
	}
	kind, _, _ := strings.Cut(media, "/")
	ranges := []string{"*/*", kind + "/*", media} // from the least specific on
	best, accepted := -1, false
	for part := range strings.SplitSeq(list, ",") {
		fields := strings.Split(part, ";")
		weight := slices.Index(ranges, strings.ToLower(strings.TrimSpace(fields[0])))
		if weight <= best {
			continue
		}
		best, accepted = weight, !refusedByWeight(fields[1:])
	}
	return accepted
}

func refusedByWeight(params []string) bool {
	for _, p := range params {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") && strings.Trim(value, "0.") == "" {
			return true
		}
	}
	return false
}
