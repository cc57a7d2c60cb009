package limits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"downlink/internal/problem"
)

// Path is where the handler belongs.
const Path = "/v1/limits"

// maxPatchBytes of a request: room for every limit many times over.
const maxPatchBytes = 64 << 10

// A List is the answer to GET and PATCH; to the latter it holds the limits that
// were named.
type List struct {
	Limits []State `json:"limits"`
	File   *File   `json:"file,omitempty"`
}

// Show serves GET /v1/limits.
func Show(r *Registry) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, r, r.States()) })
}

// Apply serves PATCH /v1/limits. What it changes is logged: it is one of the
// first questions at 3 a.m.
func Apply(r *Registry, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		states, fault := r.patch(w, req, logger)
		if fault != nil {
			problem.Write(w, fault)
			return
		}
		answer(w, r, states)
	})
}

func answer(w http.ResponseWriter, r *Registry, states []State) {
	list := List{Limits: states}
	if f := r.File(); f.Path != "" {
		list.File = &f
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(list) // the client has gone: nobody to tell
}

func (r *Registry) patch(w http.ResponseWriter, req *http.Request, logger *slog.Logger) ([]State, *problem.Document) {
	// A browser sends no such type across sites without asking first.
	if media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || media != "application/json" && media != "application/merge-patch+json" {
		return nil, problem.New(problem.UnsupportedMedia, "limits are changed with Content-Type: application/json").
			Advise(`Send Content-Type: application/json and an object such as {"streams_per_device": 8}.`)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPatchBytes))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, problem.New(problem.BodyTooLarge, fmt.Sprintf("it has more than %d bytes", tooLarge.Limit))
		}
		return nil, problem.New(problem.InvalidJSON, "the body ended too early")
	}
	wishes, err := r.wishes(body)
	var states []State
	var changes []Changed
	if err == nil {
		states, changes, err = r.Patch(wishes)
	}
	if faults, ok := errors.AsType[Faults](err); ok {
		return nil, problem.New(problem.InvalidLimit, faults.Error()).At(faults[0].Name)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, err.Error()).Advise(`Send one object with limits and whole numbers, such as {"streams_per_device": 8}; null takes an earlier PATCH back.`)
	}
	for _, c := range changes {
		logger.Info("a limit was changed", "limit", c.Name, "before", c.Before, "after", c.After, "by", "PATCH "+Path)
	}
	return states, nil
}

// wishes reads the body of a PATCH: one object of names and values. Its members
// are read one by one because a decoder into a map would let the last of two
// equal ones win in silence.
func (r *Registry) wishes(body []byte) ([]Wish, error) {
	if !json.Valid(body) || !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return nil, errors.New("it isn't one JSON object")
	}
	in := json.NewDecoder(bytes.NewReader(body))
	if _, err := in.Token(); err != nil { // the brace
		return nil, err
	}
	var wishes []Wish
	var faults Faults
	seen := make(map[string]bool)
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // a member's name, in valid JSON
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, err
		}
		value, reason := r.number(name, string(raw))
		if seen[name] {
			reason = "stands twice"
		}
		seen[name] = true
		if reason != "" {
			faults = append(faults, Fault{clip(name), reason})
			continue
		}
		if r.byName[name] == nil { // null for a limit that there isn't
			faults = append(faults, Fault{clip(name), r.fault(Wish{Name: name})})
			continue
		}
		wishes = append(wishes, Wish{name, value})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return wishes, nil
}

// number reads a value: a whole number, a text of the limit's own form, or null.
func (r *Registry) number(name, raw string) (value *int64, reason string) {
	if raw == "null" {
		return nil, ""
	}
	l := r.byName[name]
	if l == nil {
		return nil, r.fault(Wish{Name: name})
	}
	read, text := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }, raw
	if raw[0] == '"' && l.Parse != nil {
		read = l.Parse
		if json.Unmarshal([]byte(raw), &text) != nil {
			return nil, "can't be read"
		}
	}
	n, err := read(text)
	if err != nil {
		return nil, fmt.Sprintf("can't be %s; write a whole number of %s", clip(raw), l.Unit)
	}
	return &n, ""
}

// clip shortens what a client sent, for use in a message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
