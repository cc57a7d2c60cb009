package ticket

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"downlink/internal/event"
	"downlink/internal/problem"
	"downlink/internal/strictjson"
)

// Path is where Issue belongs.
const Path = "/v1/tickets"

// Permit says whether whoever sends a request may have a ticket for a device of
// groups. Its error, a *problem.Document, is the answer.
type Permit func(r *http.Request) (func(device string, groups []string) error, error)

// order is what a back end asks for.
type order struct {
	Device  string
	Groups  []string
	TTL     *int64 // seconds, as Session
	Session *int64
}

const (
	maxOrder  = 64 << 10 // bytes
	maxGroups = 64       // as with every other credential
)

// Issue answers POST /v1/tickets. Without an office there are none.
func Issue(f *Office, permit Permit) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		may, err := permit(r)
		if err == nil && f == nil {
			err = problem.New(problem.TicketsOff, "this gateway has no secret to sign tickets with")
		}
		var o order
		if err == nil {
			o, err = readOrder(w, r)
		}
		var answer *receipt
		if err == nil {
			answer, err = f.issue(o, may)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(answer) // the client has gone: nobody to tell
	})
}

func refuse(w http.ResponseWriter, err error) {
	d, ok := errors.AsType[*problem.Document](err)
	if !ok {
		d = problem.New(problem.Internal, "the ticket could not be made")
	}
	problem.Write(w, d)
}

// receipt is the answer.
type receipt struct {
	Ticket  string `json:"ticket"`
	Expires string `json:"expires"` // RFC 3339
	Hint    string `json:"url_hint"`
}

func (f *Office) issue(o order, may func(string, []string) error) (*receipt, error) {
	g, err := f.grant(o, time.Now())
	if err != nil {
		return nil, err
	}
	if err := may(g.Device, g.Groups); err != nil {
		return nil, err
	}
	text := f.secrets.seal(ticketKind, g)
	if len(text) > maxText {
		return nil, problem.New(problem.InvalidTicket, fmt.Sprintf("the ticket would have %d bytes; a URL and a cookie take %d", len(text), maxText)).
			At("groups").Advise("Name fewer groups, or shorter ones.")
	}
	f.opts.Metrics.issued.Inc()
	return &receipt{text, g.until().UTC().Format(time.RFC3339), "/events?" + parameter + "=" + url.QueryEscape(text)}, nil
}

// grant checks an order.
func (f *Office) grant(o order, now time.Time) (grant, error) {
	if err := event.ValidateDevice(o.Device); err != nil {
		return grant{}, invalid("device", err.Error())
	}
	if len(o.Groups) > maxGroups {
		return grant{}, invalid("groups", fmt.Sprintf("there are %d groups; at most %d are allowed", len(o.Groups), maxGroups))
	}
	for _, g := range o.Groups {
		if err := event.ValidateGroup(g); err != nil {
			return grant{}, invalid("groups", err.Error())
		}
	}
	ttl, err := seconds("ttl_s", o.TTL, f.opts.TTL, "ticket_ttl")
	if err != nil {
		return grant{}, err
	}
	session, err := seconds("session_s", o.Session, f.opts.Session, "ticket_session")
	if err != nil {
		return grant{}, err
	}
	// Rounded up: a ticket for a second must not be one for none.
	until := now.Add(ttl + time.Second - 1).Unix()
	return grant{ID: newID(), Device: o.Device, Groups: o.Groups, Expires: until, Session: int64(session / time.Second)}, nil
}

// seconds is a time that an order asks for, or the longest one.
func seconds(field string, asked *int64, most time.Duration, setting string) (time.Duration, error) {
	if asked == nil {
		return most, nil
	}
	if *asked < 1 || *asked > int64(most/time.Second) {
		return 0, invalid(field, fmt.Sprintf("it must be 1 to %d seconds; the most is the setting %s", int64(most/time.Second), setting))
	}
	return time.Duration(*asked) * time.Second, nil
}

func invalid(field, detail string) error {
	return problem.New(problem.InvalidTicket, detail).At(field)
}

// readOrder wants a type that a page elsewhere can't send unasked.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, err error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return o, problem.New(problem.UnsupportedMedia, "a ticket is asked for with Content-Type: application/json")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second)) // not there in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrder))
	if err != nil {
		return o, misread("the body is longer than 64 KiB, or broke off")
	}
	err = strictjson.Read(body, map[string]any{"device": &o.Device, "groups": &o.Groups, "ttl_s": &o.TTL, "session_s": &o.Session})
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		return o, wrongJSON(wrong)
	}
	return o, nil
}

func wrongJSON(wrong *strictjson.Error) *problem.Document {
	switch wrong.Fault {
	case strictjson.Twice:
		return problem.New(problem.DuplicateMember, fmt.Sprintf("%q stands twice", wrong.Member)).At(wrong.Member)
	case strictjson.Unknown:
		return problem.New(problem.UnknownMember, fmt.Sprintf("%q isn't a member of an order for a ticket", wrong.Member)).
			Advise("Remove it, or correct its name. Known are device, groups, ttl_s and session_s.")
	case strictjson.WrongKind:
		return problem.New(problem.InvalidTicket, "has the wrong type").At(wrong.Member)
	default:
		return misread("the body isn't one JSON object")
	}
}

func misread(detail string) *problem.Document {
	return problem.New(problem.InvalidJSON, detail).
		Advise(`Send one JSON object, such as {"device":"kiosk-1","groups":["lobby"],"ttl_s":30,"session_s":3600}; only device must be there.`)
}
