package gateway

import (
	"net/http"

	"downlink/internal/door"
	"downlink/internal/poll"
	"downlink/internal/session"
	"downlink/internal/sse"
	"downlink/internal/trail"
)

// openToDevices makes the endpoints for devices, and the door before both.
func (f *flow) openToDevices(o Options, c *credentials, m instruments) {
	before := door.New(door.Options{
		Identify: c.identify, Revoked: f.revoked.Has, Approach: approach, Admit: admit,
		Note: f.noteRefusal, Held: o.Entrance.held, Retry: o.Retry, Metrics: m.door,
	})
	pending := session.Options{MaxPending: o.Limits.Value(pendingEvents), MaxBytes: o.Limits.Value(pendingBytes)}
	f.events = sse.New(sse.Options{
		Door: before, Shards: f.shards, Driver: f.driver,
		Session: pending, Roster: f.roster,
		Retry: o.Retry, MaxAge: o.MaxConnectionAge, Ended: f.noteEnd,
		Metrics: m.sse, Logger: o.Logger.With("part", "sse"),
	})
	f.polls = poll.New(poll.Options{
		Door: before, Shards: f.shards,
		Session: pending, Roster: f.roster,
		Retry: o.Retry, WriteTimeout: o.WriteTimeout, Ended: f.notePoll, Metrics: m.poll,
	})
}

// noteRefusal, noteEnd and notePoll are what the trail is told.

func (f *flow) noteRefusal(r *http.Request, o door.Outcome) {
	f.trail.Note(o.Device, o.Claimed, trail.Entry{Kind: trail.Refused, Word: o.Word, Detail: o.Detail, Address: r.RemoteAddr})
}

func (f *flow) noteEnd(s *session.Session) {
	v := s.View()
	f.trail.Note(s.Device(), false, trail.Entry{Kind: trail.Ended, Word: string(v.Ended), Address: v.Address, Since: v.Since})
}

func (f *flow) notePoll(s *session.Session) {
	v := s.View()
	f.trail.Note(s.Device(), false, trail.Entry{Kind: trail.Polled, Word: string(v.Ended), Address: v.Address})
}
