package auth

import (
	"errors"
	"net/http"
	"strings"

	"downlink/internal/event"
	"downlink/internal/jwt"
)

// A Failure is why a request proves no identity: the same word in metric and
// documentation.
type Failure string

// The failures.
const (
	TokenMissing   Failure = "token_missing"
	TokenAmbiguous Failure = "token_ambiguous" // there are several
	BadDevice      Failure = "token_device"    // the claim is missing or no device ID
	BadGroups      Failure = "token_groups"
	TokenUnknown   Failure = "token_unknown" // not in the file of static tokens

	TokenMalformed = Failure(jwt.Malformed)
	BadAlgorithm   = Failure(jwt.BadAlgorithm)
	KeyUnknown     = Failure(jwt.KeyUnknown)
	BadSignature   = Failure(jwt.BadSignature)
	TokenExpired   = Failure(jwt.Expired)
	TokenTooEarly  = Failure(jwt.TooEarly)
	WrongIssuer    = Failure(jwt.WrongIssuer)
	WrongAudience  = Failure(jwt.WrongAudience)

	CertificateMissing   Failure = "certificate_missing"
	CertificateUntrusted Failure = "certificate_untrusted"
	CertificateExpired   Failure = "certificate_expired" // or not valid yet
	CertificateRevoked   Failure = "certificate_revoked"
	CertificateDevice    Failure = "certificate_device" // its name is missing or no device ID
	CertificateGroups    Failure = "certificate_groups"

	ProxyMissing   Failure = "proxy_header_missing"
	ProxyUntrusted Failure = "proxy_untrusted" // the header isn't a trusted proxy's
	ProxyAmbiguous Failure = "proxy_ambiguous" // the header came twice
	ProxyDevice    Failure = "proxy_device"
	ProxyGroups    Failure = "proxy_groups"
)

// Failures lists every failure, for metrics and documentation.
func Failures() []Failure {
	return []Failure{
		TokenMissing, TokenAmbiguous, TokenMalformed, BadAlgorithm, KeyUnknown, BadSignature,
		TokenExpired, TokenTooEarly, WrongIssuer, WrongAudience, BadDevice, BadGroups, TokenUnknown,
		CertificateMissing, CertificateUntrusted, CertificateExpired, CertificateRevoked, CertificateDevice, CertificateGroups,
		ProxyMissing, ProxyUntrusted, ProxyAmbiguous, ProxyDevice, ProxyGroups,
	}
}

// An Error is a request that proves no identity. Repeating it unchanged is
// useless.
type Error struct {
	Failure Failure
	text    string // what is wrong, and what to do; ASCII without quotes and backslashes
	// Claimed is the device that the credential names, unproven: for people who
	// look for that device. Empty if it names none.
	Claimed string
}

func failed(why Failure, text string) *Error { return &Error{Failure: why, text: text} }

func (e *Error) Error() string { return e.text }

// Status is the HTTP status of the answer (RFC 6750 §3.1).
func (e *Error) Status() int {
	if e.Failure == TokenAmbiguous || e.Failure == ProxyAmbiguous {
		return http.StatusBadRequest
	}
	return http.StatusUnauthorized
}

// Challenge is the answer's WWW-Authenticate. Who sent no token learns only
// that one is needed (RFC 6750 §3). For what isn't a token there is no
// registered scheme; the header is due all the same (RFC 9110 §15.5.2).
func (e *Error) Challenge() string {
	scheme := `Bearer realm="downlink"`
	switch kind, _, _ := strings.Cut(string(e.Failure), "_"); kind {
	case "certificate":
		scheme = `Certificate realm="downlink"`
	case "proxy":
		scheme = `Proxy realm="downlink"`
	}
	switch e.Failure {
	case TokenMissing, CertificateMissing, ProxyMissing:
		return scheme
	case TokenAmbiguous, ProxyAmbiguous:
		return scheme + `, error="invalid_request", error_description="` + e.text + `"`
	default:
		return scheme + `, error="invalid_token", error_description="` + e.text + `"`
	}
}

// A LaterError is a credential that can't be judged now; it wraps
// jwt.ErrKeysUnavailable or ErrRevocationUnknown. It helps to try again.
type LaterError struct {
	Claimed string // as in Error
	err     error
}

func (e *LaterError) Error() string { return e.err.Error() }
func (e *LaterError) Unwrap() error { return e.err }

// claiming notes the device that a credential claims to be of, if it can be one.
func claiming(device string, err error) error {
	if event.ValidateDevice(device) != nil {
		device = ""
	}
	if failed, ok := errors.AsType[*Error](err); ok {
		failed.Claimed = device // each is made for one request
		return failed
	}
	return &LaterError{device, err}
}
