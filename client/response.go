package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of the device contract (docs/protocol.md).
const (
	headerClient  = "Downlink-Client"
	headerGroups  = "Downlink-Groups"
	headerRefused = "Downlink-Refused"
)

// Reasons why Run ends by itself. Each text says what to do.
var (
	// ErrUnauthorized: the gateway answered 401.
	ErrUnauthorized = errors.New("client: the gateway doesn't accept the token: get another one and run again")
	// ErrRevoked: the gateway answered 204, which is its word for "for good".
	ErrRevoked = errors.New("client: the gateway has revoked this device for good: don't connect again")
	// ErrRefused: an answer that another try would get again, such as 404.
	ErrRefused = errors.New("client: the gateway refuses the stream: check the URL and the proxies before the gateway")
	// ErrContentType: the answer is no event stream, or no poll's; often a login
	// page.
	ErrContentType = errors.New("client: the answer is not a gateway's: check the URL, and the network for a login page")
	// ErrEventTooLarge: an event was over MaxEventBytes.
	ErrEventTooLarge = errors.New("client: an event is larger than MaxEventBytes: raise it and run again")
)

// final marks an error after which another try is useless.
type final struct{ err error }

func (f *final) Error() string { return f.err.Error() }
func (f *final) Unwrap() error { return f.err }

func asFinal(err error) error {
	if err == nil {
		return nil
	}
	return &final{err}
}

// A refusal is an answer that another try may change.
type refusal struct {
	code   int
	reason string        // the gateway's word, may be empty
	after  time.Duration // Retry-After; 0 if there was none
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("the gateway answered %d %s", r.code, http.StatusText(r.code))
	if r.reason != "" {
		text += fmt.Sprintf(" (%q)", r.reason)
	}
	return text
}

// What a gateway's answers are made of.
const (
	eventStream = "text/event-stream"
	pollAnswer  = "application/json"
	problemJSON = "application/problem+json"
)

// checkResponse says whether what was asked for follows: nil, a *refusal or a
// *final.
func checkResponse(resp *http.Response, media string) error {
	code := resp.StatusCode
	switch {
	case code == http.StatusOK:
		return checkContentType(resp.Header.Get("Content-Type"), media)
	case code == http.StatusNoContent:
		return &final{ErrRevoked}
	case code == http.StatusUnauthorized:
		return &final{ErrUnauthorized}
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		return &refusal{code, resp.Header.Get(headerRefused), retryAfter(resp.Header.Get("Retry-After"))}
	default:
		return &final{fmt.Errorf("%w (it answered %d %s)", ErrRefused, code, http.StatusText(code))}
	}
}

// maxReason bounds what is shown of an answer's text, in bytes.
const maxReason = 300

// explain adds what the gateway, or what stands before it, says about an answer
// that ends the run. Anybody may have written it, so it is quoted.
func explain(err error, resp *http.Response) error {
	end, ok := errors.AsType[*final](err)
	if !ok || resp.StatusCode < 400 {
		return err
	}
	said := ""
	switch essence := essenceOf(resp.Header.Get("Content-Type")); {
	case essence == "", strings.EqualFold(essence, "text/plain"): // without a type: net/http's words for plain HTTP on a TLS port
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // what came is enough
		said = strings.TrimSpace(string(text))
	case strings.EqualFold(essence, problemJSON):
		var problem struct{ Detail string }
		_ = json.NewDecoder(io.LimitReader(resp.Body, 4*maxReason)).Decode(&problem) // likewise
		said = problem.Detail[:min(len(problem.Detail), maxReason)]
	}
	if said != "" {
		return &final{fmt.Errorf("%w; it says %q", end.err, said)}
	}
	return err
}

func essenceOf(contentType string) string {
	essence, _, _ := strings.Cut(contentType, ";")
	return strings.TrimSpace(essence)
}

// checkContentType takes the media type and ignores its parameters: the answer
// is UTF-8 whatever they say.
func checkContentType(value, media string) error {
	if strings.EqualFold(essenceOf(value), media) {
		return nil
	}
	if t, _, err := mime.ParseMediaType(value); err == nil {
		return &final{fmt.Errorf("%w (its type is %q)", ErrContentType, t)}
	}
	return &final{ErrContentType}
}

// retryAfter reads both forms of RFC 9110 §10.2.3; 0 if it can't.
func retryAfter(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
