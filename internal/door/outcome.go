package door

import "net/http"

// An Outcome is how a request ended that got nothing: for people who ask later
// why. It holds no part of a credential but the device that one claims.
type Outcome struct {
	Device  string // who asked; empty if nobody can tell
	Claimed bool   // the device is only what a credential says that wasn't proven
	Word    string // a Refusal, Revoked, Rejected, or the word of the credential's failure
	Detail  string // what the client was told; empty where the word says it all
}

// Words of outcomes that aren't refusals.
const (
	Revoked  = "revoked"  // the device was shut out
	Rejected = "rejected" // the request can't be right, whoever asks
)

func (d *Door) note(r *http.Request, o Outcome) {
	if d.opts.Note != nil {
		d.opts.Note(r, o)
	}
}
