// Package explain owns the answer to "what about this device?" of one gateway:
// GET /v1/devices/{device}. It gathers what others know, changes nothing, and
// keeps nothing. Its invariant: a question costs the same whatever the number of
// devices, and the answer holds no part of a credential but the device that one
// claims.
package explain

import (
	"encoding/json"
	"net/http"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
	"downlink/internal/session"
	"downlink/internal/shard"
	"downlink/internal/trail"
)

// Path is where the handler belongs, as http.ServeMux takes it.
const Path = "/v1/devices/{device}"

// Options for a Handler.
type Options struct {
	Gateway  string // its name
	Instance string // random, to tell one gateway with two addresses from two
	Version  string
	Address  string                       // of the devices' port
	Ready    func() (ok bool, why string) // whether devices are served
	Troubles func() []string              // what keeps devices away all the same; nil: nothing
	Shards   interface {
		Of(device string) *shard.Shard
	}
	Revoked func(device string) (r eventlog.Revocation, revoked bool)
	Trail   *trail.Trail
	// Dials says which member is to dial a device of a shard. Nil: devices connect.
	Dials func(device string, shard int) string
}

// A Handler answers questions about devices. Safe for concurrent use.
type Handler struct{ opts Options }

// New makes the handler.
func New(o Options) *Handler { return &Handler{o} }

// ServeHTTP answers one question.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	device := r.PathValue("device")
	if err := event.ValidateDevice(device); err != nil {
		problem.Write(w, problem.New(problem.InvalidDevice, err.Error()).At("device"))
		return
	}
	data, err := json.Marshal(h.Report(device))
	if err != nil { // a year over 9999
		problem.Write(w, problem.New(problem.Internal, "the answer could not be encoded"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(data, '\n')) // the client has gone: nobody to tell
}

// Report gathers what is known of a device.
func (h *Handler) Report(device string) *Report {
	s := h.opts.Shards.Of(device)
	members, position := s.Look(device)
	proven, claimed := h.opts.Trail.Of(device)
	r := &Report{
		Device: device, Time: time.Now(), Shard: s.Number(),
		Gateway:  Gateway{Name: h.opts.Gateway, Instance: h.opts.Instance, Version: h.opts.Version, Address: h.opts.Address},
		Sessions: make([]Session, 0, len(members)),
		Trail:    happenings(proven), Claimed: happenings(claimed), Nameless: happenings(h.opts.Trail.Nameless()),
	}
	r.Gateway.Ready, r.Gateway.Why = h.opts.Ready()
	if h.opts.Troubles != nil {
		r.Gateway.Troubles = h.opts.Troubles()
	}
	if by, revoked := h.opts.Revoked(device); revoked {
		r.Revoked, r.Revocation = true, revocation(by)
	}
	if h.opts.Dials != nil {
		r.Dials = h.opts.Dials(device, r.Shard)
	}
	if !position.IsZero() {
		r.Position = position.String()
	}
	for _, m := range members {
		if s, ok := m.Subscriber.(*session.Session); ok {
			r.Sessions = append(r.Sessions, describe(s.View(), m, position))
		}
	}
	return r
}

func revocation(by eventlog.Revocation) *Revocation {
	r := &Revocation{Reason: by.Reason}
	if since := by.Since(); !since.IsZero() {
		r.Since, r.ID = &since, by.ID.String()
	}
	return r
}

func describe(v session.View, m shard.View, position event.ID) Session {
	s := Session{
		Kind: "stream", Since: v.Since, Address: v.Address, Protocol: v.Protocol, Credential: v.Credential,
		Groups: m.Groups, State: m.State, Pending: v.Pending, PendingBytes: v.Bytes, Conflated: v.Spared,
		Behind: Behind{Events: v.Pending + m.Missing, More: m.Older},
	}
	switch {
	case v.Credential == session.Dialled:
		s.Kind = "dialled"
	case v.JSON:
		s.Kind = "poll"
	}
	if !v.Expires.IsZero() {
		s.Expires = &v.Expires
	}
	if !v.Cursor.IsZero() {
		s.Cursor = v.Cursor.String()
	}
	oldest := v.Oldest
	if oldest.IsZero() {
		oldest = m.Oldest
	}
	if !oldest.IsZero() && oldest.Ms < position.Ms {
		s.Behind.MS = position.Ms - oldest.Ms
	}
	return s
}

func happenings(entries []trail.Entry) []Happening {
	all := make([]Happening, len(entries))
	for i, e := range entries {
		all[i] = Happening{
			What: string(e.Kind), Word: e.Word, Detail: e.Detail, Address: e.Address,
			First: e.First, Last: e.Last, Times: e.Times,
		}
		if !e.Since.IsZero() {
			all[i].Since = &e.Since
		}
	}
	return all
}
