package ticket

import (
	"errors"
	"net/http"
)

// A Failure is why a ticket doesn't let in: the same word in metric and
// documentation.
type Failure string

// The failures.
const (
	Ambiguous Failure = "ticket_ambiguous" // there are several
	Invalid   Failure = "ticket_invalid"
	Expired   Failure = "ticket_expired"
	Used      Failure = "ticket_used"
)

// Failures lists every failure, for metrics and documentation.
func Failures() []Failure { return []Failure{Ambiguous, Invalid, Expired, Used} }

// An Error is a ticket that doesn't let in. Repeating it unchanged is useless.
type Error struct {
	Failure Failure
	text    string // what is wrong, and what to do; ASCII without quotes and backslashes
	Device  string // that the ticket is for; empty if that isn't proven
}

func (e *Error) Error() string { return e.text }

// Status is the HTTP status of the answer.
func (e *Error) Status() int {
	if e.Failure == Ambiguous {
		return http.StatusBadRequest
	}
	return http.StatusUnauthorized
}

// Challenge is the answer's WWW-Authenticate. There is no registered scheme for
// it; the header is due all the same (RFC 9110 §15.5.2).
func (e *Error) Challenge() string {
	return `Ticket realm="downlink", error="invalid_token", error_description="` + e.text + `"`
}

// ErrUnavailable says that nobody knows whether the ticket was used before. It
// helps to come back with it, if it wasn't.
var ErrUnavailable = errors.New("whether the ticket was used can't be known now; come back with it")
