package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"downlink/internal/problem"
	"downlink/internal/rebalance"
	"downlink/internal/strictjson"
)

// Path is where the handlers belong: GET, POST and DELETE.
const Path = "/v1/drain"

// maxBody bounds what may come with a request.
const maxBody = 1 << 10

// A Status is how far a drain has come, or what one would take. Times are in
// seconds.
type Status struct {
	Phase       Phase      `json:"phase"`
	BegunBy     Cause      `json:"begun_by,omitempty"`
	Begun       *time.Time `json:"begun,omitempty"`
	Final       bool       `json:"final"` // it can't be aborted any more
	Hastened    bool       `json:"hastened"`
	Connections int        `json:"connections"` // now
	Found       int        `json:"found"`       // when the telling began
	Told        int        `json:"told"`
	// WithinS is in which time the process ends at the latest; nil without a drain
	// or a deadline.
	WithinS *float64   `json:"within_s,omitempty"`
	Plan    StatusPlan `json:"plan"`
	// Rebalance is how this gateway stands beside the others.
	Rebalance *rebalance.Status `json:"rebalance,omitempty"`
}

// A StatusPlan is a Plan, for programs.
type StatusPlan struct {
	Connections int     `json:"connections"`
	WaitS       float64 `json:"wait_s"`
	TellS       float64 `json:"tell_s"`
	CloseS      float64 `json:"close_s"`
	LastS       float64 `json:"last_s"`
	TotalS      float64 `json:"total_s"`
	PerSecond   float64 `json:"per_second"` // 0: all at once
	BackS       float64 `json:"back_s"`     // until the last device is told to be back
}

// Status says how far it has come.
func (d *Drain) Status() Status {
	s := d.stand()
	if d.opts.Rebalance != nil {
		even := d.opts.Rebalance()
		s.Rebalance = &even
	}
	return s
}

func (d *Drain) stand() Status {
	now := d.opts.Roster.Len()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.course
	if c == nil {
		return Status{Phase: Serving, Connections: now, Plan: d.opts.terms().Plan(now).status()}
	}
	began := c.began.UTC()
	s := Status{
		Phase: c.phase, BegunBy: c.by, Begun: &began, Hastened: c.hurry,
		Final:       d.ordered || c.phase == Closing || c.phase == Closed,
		Connections: now, Found: c.found, Told: c.told, Plan: c.plan.status(),
	}
	if c.phase == Waiting {
		s.Plan = d.opts.terms().Plan(now).status()
	}
	if d.opts.Deadline > 0 {
		within := max(d.opts.Deadline-time.Since(c.began), 0).Seconds()
		s.WithinS = &within
	}
	return s
}

func (p Plan) status() StatusPlan {
	return StatusPlan{
		Connections: p.Connections, WaitS: p.Wait.Seconds(), TellS: p.Tell.Seconds(), CloseS: p.Close.Seconds(),
		LastS: p.Last.Seconds(), TotalS: p.Total().Seconds(), PerSecond: p.Pace, BackS: p.Back.Seconds(),
	}
}

// Handlers serve Path.
type Handlers struct {
	drain *Drain
	cross *http.CrossOriginProtection
}

// Handlers makes the handlers of a drain.
func (d *Drain) Handlers() *Handlers {
	return &Handlers{drain: d, cross: http.NewCrossOriginProtection()}
}

// Show says how far a drain has come.
func (h *Handlers) Show(w http.ResponseWriter, _ *http.Request) { h.answer(w, http.StatusOK) }

// Begin begins a drain, or hastens one.
func (h *Handlers) Begin(w http.ResponseWriter, r *http.Request) {
	hasten, fault := h.read(w, r)
	if fault != nil {
		problem.Write(w, fault)
		return
	}
	h.drain.Begin(ByAPI)
	if hasten {
		h.drain.Hasten()
	}
	h.answer(w, http.StatusAccepted)
}

// Abort takes a drain back.
func (h *Handlers) Abort(w http.ResponseWriter, r *http.Request) {
	if err := h.cross.Check(r); err != nil {
		problem.Write(w, crossOrigin())
		return
	}
	if !h.drain.Abort() {
		s := h.drain.Status()
		detail := fmt.Sprintf("it is %s, and %d connections are left", s.Phase, s.Connections)
		if s.Phase == Waiting || s.Phase == Telling {
			detail = "the process was asked to end by a signal"
		}
		problem.Write(w, problem.New(problem.DrainFinal, detail))
		return
	}
	h.answer(w, http.StatusOK)
}

// crossOrigin refuses what a page of another site makes a browser send, to a back
// end that asks for no token.
func crossOrigin() *problem.Document {
	return problem.New(problem.CrossOrigin, "a page of another origin sent it")
}

func (h *Handlers) answer(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h.drain.Status()) // the client has gone: nobody to tell
}

// read reads what may come with an order. No body says nothing, and is fine.
func (h *Handlers) read(w http.ResponseWriter, r *http.Request) (hasten bool, fault *problem.Document) {
	if err := h.cross.Check(r); err != nil {
		return false, crossOrigin()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return false, problem.New(problem.BodyTooLarge, "a drain is ordered with a body of at most 1 KiB, or none").Advise(adviseBody)
	}
	if err != nil {
		return false, problem.New(problem.RequestTimeout, "the body broke off")
	}
	if len(body) == 0 {
		return false, nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return false, problem.New(problem.UnsupportedMedia, "the body of a drain's order is application/json").Advise(adviseBody)
	}
	err = strictjson.Read(body, map[string]any{"hasten": &hasten})
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		return false, wrongJSON(wrong)
	}
	return hasten, nil
}

const adviseBody = `Send no body, or Content-Type: application/json and {"hasten": true}.`

func wrongJSON(wrong *strictjson.Error) *problem.Document {
	switch wrong.Fault {
	case strictjson.Twice:
		return problem.New(problem.DuplicateMember, fmt.Sprintf("%q stands twice", wrong.Member)).At(wrong.Member)
	case strictjson.Unknown:
		return problem.New(problem.UnknownMember, fmt.Sprintf("%q isn't a member of a drain's order", wrong.Member)).Advise(adviseBody)
	case strictjson.WrongKind:
		return problem.New(problem.InvalidJSON, fmt.Sprintf("%q has the wrong type", wrong.Member)).At(wrong.Member).Advise(adviseBody)
	default:
		return problem.New(problem.InvalidJSON, "the body isn't one JSON object").Advise(adviseBody)
	}
}
