package gateway

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"downlink/internal/door"
	"downlink/internal/explain"
	"downlink/internal/poll"
	"downlink/internal/problem"
	"downlink/internal/session"
	"downlink/internal/sse"
	"downlink/internal/trail"
)

// openToDevices makes the endpoints for devices, and the door before both.
func (f *flow) openToDevices(o Options, c *credentials, m instruments) {
	before := door.New(door.Options{
		Identify: c.identify, Revoked: f.revoked.Has, Approach: approach, Admit: f.admit,
		Note: f.noteRefusal, Held: o.Entrance.held, Retry: o.Retry, Metrics: m.door,
	})
	pending := session.Options{MaxPending: o.Limits.Value(pendingEvents), MaxBytes: o.Limits.Value(pendingBytes)}
	f.events = sse.New(sse.Options{
		Door: before, Shards: f.shards, Driver: f.driver,
		Session: pending, Roster: f.out.roster, Ages: f.out.ages,
		Retry: o.Retry, MaxAge: o.MaxConnectionAge, Ended: f.noteEnd,
		Metrics: m.sse, Logger: o.Logger.With("part", "sse"),
	})
	f.polls = poll.New(poll.Options{
		Door: before, Shards: f.shards,
		Session: pending, Roster: f.out.roster,
		Retry: o.Retry, WriteTimeout: o.WriteTimeout, Ended: f.notePoll, Metrics: m.poll,
	})
}

// explain serves GET /v1/devices/{device}.
func (g *base) explain(w http.ResponseWriter, r *http.Request) {
	if f := g.flow.Load(); f != nil {
		g.explainer(f).ServeHTTP(w, r)
		return
	}
	problem.Write(w, problem.New(problem.LogUnavailable, "the gateway has not reached its log since it started"))
}

// explainer answers for this gateway. Questions are rare.
func (g *base) explainer(f *flow) *explain.Handler {
	name, _ := os.Hostname() // without a name its address has to do
	return explain.New(explain.Options{
		Gateway: name, Instance: g.instance, Version: g.opts.Version, Address: g.address(), Ready: g.ready,
		Troubles: g.identity.troubles,
		Shards:   f.shards, Revoked: f.revoked.Find, Trail: f.trail,
		Dials: g.dials,
	})
}

// noteRefusal, noteEnd and notePoll are what the trail is told.

func (f *flow) noteRefusal(r *http.Request, o door.Outcome) {
	f.trail.Note(o.Device, o.Claimed, trail.Entry{Kind: trail.Refused, Word: o.Word, Detail: o.Detail, Address: r.RemoteAddr})
}

// originRefused is the word for a page that may not read what devices get.
const originRefused = "origin"

func (f *flow) noteOrigin(r *http.Request) {
	f.trail.Note("", true, trail.Entry{Kind: trail.Refused, Word: originRefused, Detail: "of a page of " + strings.Join(r.Header["Origin"], ", "), Address: r.RemoteAddr})
}

func (f *flow) noteEnd(s *session.Session) {
	v := s.View()
	f.trail.Note(s.Device(), false, trail.Entry{Kind: trail.Ended, Word: string(v.Ended), Detail: f.detail(v), Address: v.Address, Since: v.Since})
}

func (f *flow) notePoll(s *session.Session) {
	v := s.View()
	f.trail.Note(s.Device(), false, trail.Entry{Kind: trail.Polled, Word: string(v.Ended), Detail: f.detail(v), Address: v.Address})
}

// detail is what is to be said of a session that has ended, beside the reason.
func (f *flow) detail(v session.View) string {
	if why := f.levers.admission.position().Why; v.Ended == session.Shed && why != "" {
		return "the governor: " + why
	}
	return leftOut(v.Spared)
}

// leftOut says what conflation has spared a session; nothing if it hasn't.
func leftOut(events uint32) string {
	if events == 0 {
		return ""
	}
	return fmt.Sprintf("left out %d events for newer ones of their keys", events)
}
