package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"downlink/internal/event"
	"downlink/internal/intake"
	"downlink/internal/post"
	"downlink/internal/problem"
	"downlink/internal/strictjson"
)

// A call is what one JSON object asks for.
type call struct {
	devices []string // each once
	list    bool     // "devices" was used
	event   post.Event
}

// parse reads and validates a call by the rules for events; maxPayload is in
// bytes. The error is a *problem.Document.
func parse(text []byte, maxPayload int) (*call, error) {
	var in struct {
		device, payloadText *string
		devices             []string
		typ, idem, trace    *string
		payload             json.RawMessage
	}
	err := strictjson.Read(text, map[string]any{
		"device": &in.device, "devices": &in.devices, "type": &in.typ, "payload": &in.payload, "text": &in.payloadText,
		"idem": &in.idem, "trace": &in.trace,
	})
	if err != nil {
		return nil, badJSON(err)
	}
	c := &call{devices: in.devices, list: in.devices != nil}
	switch {
	case in.device == nil && !c.list:
		return nil, problem.New(problem.InvalidEvent, "device (or devices) is missing").At("device")
	case in.device != nil && c.list:
		return nil, problem.New(problem.InvalidEvent, "device and devices exclude each other").At("devices")
	case in.typ == nil:
		return nil, problem.New(problem.InvalidEvent, "type is missing").At("type")
	case in.payload == nil && in.payloadText == nil:
		return nil, problem.New(problem.InvalidEvent, `payload (any JSON) or text (a string) is missing; an event without content has "text":""`).At("payload")
	case in.payload != nil && in.payloadText != nil:
		return nil, problem.New(problem.InvalidEvent, "payload and text exclude each other").At("text")
	case in.idem != nil && *in.idem == "":
		return nil, problem.New(problem.InvalidIdempotency, "idem is empty").At("idem")
	case in.device != nil:
		c.devices = []string{*in.device}
	}
	c.event = post.Event{Type: *in.typ, Payload: string(in.payload), Idem: optional(in.idem), Trace: optional(in.trace)}
	if in.payloadText != nil {
		c.event.Payload = *in.payloadText
	}
	return c, c.validate(maxPayload)
}

// optional is a member that may be missing.
func optional(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func badJSON(err error) *problem.Document {
	bad, _ := errors.AsType[*strictjson.Error](err)
	switch bad.Fault {
	case strictjson.Twice:
		return problem.New(problem.DuplicateMember, fmt.Sprintf("%q stands twice", bad.Member)).At(bad.Member)
	case strictjson.Unknown:
		return problem.New(problem.UnknownMember, fmt.Sprintf("%q isn't a member of a push", bad.Member)).At(bad.Member).
			Advise("Remove it, or correct its name. Known are device, devices, type, payload, text, idem and trace.")
	case strictjson.WrongKind:
		return problem.New(problem.InvalidEvent, bad.Member+" has the wrong type, or holds half of a surrogate pair").At(bad.Member)
	default:
		return problem.New(problem.InvalidJSON, "the body isn't one JSON object in UTF-8")
	}
}

func (c *call) validate(maxPayload int) error {
	if err := c.validateDevices(); err != nil {
		return err
	}
	e := event.Event{Target: c.devices[0], Type: c.event.Type, Payload: c.event.Payload, Idem: c.event.Idem, Trace: c.event.Trace}
	err := e.Validate(maxPayload)
	bad, known := errors.AsType[*event.Error](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, event.ErrTooLarge):
		return problem.New(problem.EventTooLarge, err.Error()).At("payload")
	case known && bad.Field == "idem":
		return problem.New(problem.InvalidIdempotency, "the key "+bad.Reason).At("idem")
	case known:
		return problem.New(problem.InvalidEvent, bad.Field+" "+bad.Reason).At(bad.Field)
	default:
		return problem.New(problem.InvalidEvent, err.Error())
	}
}

func (c *call) validateDevices() error {
	if n := len(c.devices); n == 0 || n > MaxDevices {
		if n == 0 {
			return problem.New(problem.InvalidEvent, "devices is empty").At("devices")
		}
		return problem.New(problem.TooManyDevices, fmt.Sprintf("devices has %d members, and at most %d are allowed", n, MaxDevices)).At("devices").
			Advise("Split the list into several requests, or send NDJSON.")
	}
	seen := make(map[string]struct{}, len(c.devices))
	for i, d := range c.devices {
		at := "device"
		if c.list {
			at = "devices[" + strconv.Itoa(i) + "]"
		}
		if event.ToAll(d) {
			return problem.New(problem.InvalidEvent, at+" is a group or everybody, and a push is for devices by name").At(at).
				Advise("Name the devices, or run downlink dial with an owner: then there is a log, and POST /v1/events takes groups and broadcasts.")
		}
		if bad, ok := errors.AsType[*event.Error](event.ValidateDevice(d)); ok {
			return problem.New(problem.InvalidEvent, bad.Field+" "+bad.Reason).At(at)
		}
		if _, twice := seen[d]; twice {
			return problem.New(problem.DuplicateMember, fmt.Sprintf("the device %q stands twice in devices", d)).At(at)
		}
		seen[d] = struct{}{}
	}
	return nil
}

// identify joins the request's idempotency key with the event's own. A line of a
// batch (they count from 1) without one has the request's and its number.
func (c *call) identify(key string, line int) error {
	switch {
	case key == "":
	case line > 0 && c.event.Idem == "":
		c.event.Idem = key + "#" + strconv.Itoa(line)
		if len(c.event.Idem) > event.MaxIdemBytes {
			return problem.New(problem.InvalidIdempotency,
				fmt.Sprintf("%s with the line's number has %d bytes, allowed are %d", intake.KeyHeader, len(c.event.Idem), event.MaxIdemBytes))
		}
	case line > 0:
	case c.event.Idem == "":
		c.event.Idem = key
	case c.event.Idem != key:
		return problem.New(problem.InvalidIdempotency, "the header "+intake.KeyHeader+" and the member idem differ").At("idem")
	}
	return nil
}

// traced passes the request's own trace on where the event has none.
func (c *call) traced(r *http.Request) {
	if c.event.Trace != "" {
		return
	}
	if parent := r.Header.Get("Traceparent"); len(parent) <= event.MaxTraceBytes {
		c.event.Trace = parent
	}
	if state := r.Header.Get("Tracestate"); c.event.Trace != "" && len(state) <= maxStateBytes {
		c.event.State = state
	}
}

// maxStateBytes is what W3C Trace Context has every party pass on (§3.3.1.5).
const maxStateBytes = 512
