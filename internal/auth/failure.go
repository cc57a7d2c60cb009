package auth

import "net/http"

// A Failure is why a request proves no identity: the same word in metric and
// documentation.
type Failure string

// The failures.
const (
	TokenMissing   Failure = "token_missing"
	TokenAmbiguous Failure = "token_ambiguous" // there are several
	TokenMalformed Failure = "token_malformed"
	BadAlgorithm   Failure = "token_algorithm" // no key of this gateway is for it
	KeyUnknown     Failure = "token_key"
	BadSignature   Failure = "token_signature"
	TokenExpired   Failure = "token_expired"
	TokenTooEarly  Failure = "token_not_yet_valid"
	WrongIssuer    Failure = "token_issuer"
	WrongAudience  Failure = "token_audience"
	BadDevice      Failure = "token_device" // the claim is missing or no device ID
	BadGroups      Failure = "token_groups"
)

// Failures lists every failure, for metrics and documentation.
func Failures() []Failure {
	return []Failure{
		TokenMissing, TokenAmbiguous, TokenMalformed, BadAlgorithm, KeyUnknown, BadSignature,
		TokenExpired, TokenTooEarly, WrongIssuer, WrongAudience, BadDevice, BadGroups,
	}
}

// An Error is a request that proves no identity. Repeating it unchanged is
// useless.
type Error struct {
	Failure Failure
	text    string // what is wrong, and what to do; ASCII without quotes and backslashes
}

func (e *Error) Error() string { return e.text }

// Status is the HTTP status of the answer (RFC 6750 §3.1).
func (e *Error) Status() int {
	if e.Failure == TokenAmbiguous {
		return http.StatusBadRequest
	}
	return http.StatusUnauthorized
}

// Challenge is the answer's WWW-Authenticate. Who sent no token learns only
// that one is needed (RFC 6750 §3).
func (e *Error) Challenge() string {
	const scheme = `Bearer realm="downlink"`
	switch e.Failure {
	case TokenMissing:
		return scheme
	case TokenAmbiguous:
		return scheme + `, error="invalid_request", error_description="` + e.text + `"`
	default:
		return scheme + `, error="invalid_token", error_description="` + e.text + `"`
	}
}
