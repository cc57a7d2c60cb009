package door

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Identity is who a request comes from.
type Identity struct {
	Device  string
	Groups  []string  // without prefix
	Expires time.Time // what it gets ends then; zero: never
	// Redeem uses up what lets in only once, after all else. The identity that
	// it returns is the one that counts then; cookie, if it isn't empty, is the
	// Set-Cookie that the answer carries. Errors are those of Options.Identify.
	// Nil: there is nothing to use up.
	Redeem func(context.Context) (id Identity, cookie string, err error)
	// Credential is the kind of what was proven, for people: "jwt", "none" …
	Credential string
	// Valid reports whether the credential still stands; whoever gives something
	// for long asks again when told that credentials were withdrawn. Nil: it
	// always does.
	Valid func() bool
}

// An UnauthorizedError is a request that proves no identity. Its answer is
// final, for a native EventSource too: it must not try on with that token.
type UnauthorizedError struct {
	Status    int    // 401, or 400 if it can't be told what the client means
	Reason    string // what is wrong and what to do; shown to the client
	Challenge string // the header WWW-Authenticate
	Word      string // the failure's word in metrics and documentation
	Device    string // that the credential claims, for people; empty if it says none
}

func (e *UnauthorizedError) Error() string { return e.Reason }

// A LaterError is an identity that can't be known now.
type LaterError struct {
	Refusal Refusal // what the client is told, with a time to come back
	Device  string  // that the credential claims, for people; empty if it says none
}

func (e *LaterError) Error() string { return "come back later: " + string(e.Refusal) }

// unidentified answers a request whose sender isn't known.
func (d *Door) unidentified(w http.ResponseWriter, r *http.Request, as Dialect, err error) {
	if later, ok := errors.AsType[*LaterError](err); ok {
		d.note(r, Outcome{Device: later.Device, Claimed: true, Word: string(later.Refusal)})
		d.later(w, r, as, No{Why: later.Refusal, Retry: d.retry()})
		return
	}
	if denied, ok := errors.AsType[*UnauthorizedError](err); ok {
		d.opts.Metrics.Rejected.Inc()
		d.note(r, Outcome{Device: denied.Device, Claimed: true, Word: denied.Word, Detail: denied.Reason})
		w.Header().Set("WWW-Authenticate", denied.Challenge)
		w.Header().Set("Cache-Control", "no-store")
		as.error(w, denied.Reason, denied.Status)
		return
	}
	d.Reject(w, r, as, "", err)
}
