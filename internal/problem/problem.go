// Package problem owns the error documents of the back end (RFC 9457,
// application/problem+json): which kinds there are, their status, title and
// hint. It doesn't know who fails or why; callers choose the kind and say what
// happened. Its invariant: every document names a kind of the table, and says
// what to do.
package problem

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// ContentType is the media type of a problem document (RFC 9457 §4).
const ContentType = "application/problem+json"

// typePrefix and a Code form a document's type. It is a name, not an address
// (RFC 9457 §3.1.1 allows that), because the product has no public host.
const typePrefix = "urn:downlink:problem:"

// Retry-After of a 503, in seconds: spread, so that producers that failed
// together don't come back together.
const (
	retryAfterLeast = 1
	retryAfterMost  = 5
)

// A Document is one problem, ready to be sent. It is an error, so that the
// code that finds a problem can simply return it.
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // what happened this time
	Hint   string `json:"hint,omitempty"`   // what to do about it
	Field  string `json:"field,omitempty"`  // the member of the request that is at fault
	// RetryAfter is in seconds; 0 says nothing about when to repeat.
	RetryAfter int `json:"retry_after,omitempty"`

	code Code
}

// New is a document of a kind; detail says what happened this time. A code
// that isn't in the table gives a document of kind Internal.
func New(code Code, detail string) *Document {
	k, ok := find(code)
	if !ok {
		k, _ = find(Internal)
	}
	return &Document{
		Type:   k.Type(),
		Title:  k.Title,
		Status: k.Status,
		Detail: detail,
		Hint:   k.Hint,
		code:   k.Code,
	}
}

// At names the member of the request that is at fault, and returns d.
func (d *Document) At(field string) *Document {
	d.Field = field
	return d
}

// Advise replaces the kind's general hint by a better one, and returns d.
func (d *Document) Advise(hint string) *Document {
	d.Hint = hint
	return d
}

// After says in how many seconds a repetition may succeed, and returns d.
func (d *Document) After(seconds int) *Document {
	d.RetryAfter = seconds
	return d
}

// Code is the document's kind.
func (d *Document) Code() Code { return d.code }

// Error makes a Document an error.
func (d *Document) Error() string {
	if d.Detail == "" {
		return d.Title
	}
	return d.Title + ": " + d.Detail
}

// Write answers a request with a document.
func Write(w http.ResponseWriter, d *Document) {
	if d.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
	WriteAs(w, d.Status, d)
}

// WriteAs answers a request with a document that has more members than a
// Document: body is a struct that embeds one.
func WriteAs(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil { // a caller's type that isn't JSON: a fault of the program
		status = http.StatusInternalServerError
		data, _ = json.Marshal(New(Internal, "the answer could not be encoded"))
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.Itoa(retryAfterLeast+rand.IntN(retryAfterMost-retryAfterLeast+1)))
	}
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="downlink"`) // RFC 9110 §15.5.2: due with every 401
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client has gone: nobody to tell
}
