package publish

import (
	"errors"
	"fmt"

	"downlink/internal/event"
	"downlink/internal/intake"
	"downlink/internal/problem"
)

// A message is what one JSON object asks for.
type message struct {
	targets []string // device IDs, or one broadcast or group target
	one     [1]string
	list    bool // "devices" was used
	typ     string
	payload string
	key     string
	idem    string
	trace   string
}

// The members of a message, as bits of a set.
const (
	hasDevice = 1 << iota
	hasDevices
	hasType
	hasPayload
	hasText
	hasKey
	hasIdem
	hasTrace
)

// parse reads and validates a message; maxPayload is in bytes. The message
// keeps nothing of body: its texts are parts of one copy. The error is a
// *problem.Document.
func parse(body []byte, maxPayload int) (*message, error) {
	m := &message{}
	var seen uint
	err := members(string(body), func(name, raw string) error {
		bit, err := m.set(name, raw)
		if err != nil {
			return err
		}
		if seen&bit != 0 {
			return problem.New(problem.DuplicateMember, fmt.Sprintf("%q stands twice", name)).At(name)
		}
		seen |= bit
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := complete(seen); err != nil {
		return nil, err
	}
	if seen&hasIdem != 0 && m.idem == "" {
		return nil, problem.New(problem.InvalidIdempotency, "idem is empty").At("idem")
	}
	return m, m.validate(maxPayload)
}

// set stores one member and returns its bit.
func (m *message) set(name, raw string) (bit uint, err error) {
	text := func(to *string) {
		if raw[0] != '"' {
			err = problem.New(problem.InvalidEvent, name+" isn't a string").At(name)
			return
		}
		*to, err = unquote(raw)
	}
	switch name {
	case "device":
		m.targets = m.one[:]
		text(&m.targets[0])
		return hasDevice, err
	case "devices":
		m.list = true
		m.targets, err = deviceList(raw)
		return hasDevices, err
	case "type":
		text(&m.typ)
		return hasType, err
	case "payload":
		m.payload = raw // as it is: the producer's bytes are the device's
		return hasPayload, nil
	case "text":
		text(&m.payload)
		return hasText, err
	case "key":
		text(&m.key)
		return hasKey, err
	case "idem":
		text(&m.idem)
		return hasIdem, err
	case "trace":
		text(&m.trace)
		return hasTrace, err
	default:
		return 0, problem.New(problem.UnknownMember, fmt.Sprintf("%q isn't a member of an event", intake.Clip(name))).At(intake.Clip(name))
	}
}

func deviceList(raw string) ([]string, error) {
	const field = "devices"
	if raw[0] != '[' {
		return nil, problem.New(problem.InvalidEvent, "devices isn't an array of device IDs").At(field)
	}
	var devices []string
	seen := make(map[string]struct{})
	err := elements(raw, func(raw string) error {
		at := func() string { return fmt.Sprintf("%s[%d]", field, len(devices)) }
		if len(devices) == MaxDevices {
			return problem.New(problem.TooManyDevices, fmt.Sprintf("devices has more than %d members", MaxDevices)).At(field)
		}
		if raw[0] != '"' {
			return problem.New(problem.InvalidEvent, at()+" isn't a string").At(at())
		}
		device, err := unquote(raw)
		if err != nil {
			return err
		}
		if err := event.ValidateDevice(device); err != nil {
			return problem.New(problem.InvalidEvent, reasonOf(err)).At(at())
		}
		if _, twice := seen[device]; twice {
			return problem.New(problem.DuplicateMember, fmt.Sprintf("the device %q stands twice in devices", device)).At(at())
		}
		seen[device] = struct{}{}
		devices = append(devices, device)
		return nil
	})
	if err == nil && len(devices) == 0 {
		err = problem.New(problem.InvalidEvent, "devices is empty").At(field)
	}
	return devices, err
}

// complete checks which members are there together.
func complete(seen uint) error {
	switch {
	case seen&(hasDevice|hasDevices) == 0:
		return problem.New(problem.InvalidEvent, "device (or devices) is missing").At("device")
	case seen&hasDevice != 0 && seen&hasDevices != 0:
		return problem.New(problem.InvalidEvent, "device and devices exclude each other").At("devices")
	case seen&hasType == 0:
		return problem.New(problem.InvalidEvent, "type is missing").At("type")
	case seen&(hasPayload|hasText) == 0:
		return problem.New(problem.InvalidEvent, `payload (any JSON) or text (a string) is missing; an event without content has "text":""`).At("payload")
	case seen&hasPayload != 0 && seen&hasText != 0:
		return problem.New(problem.InvalidEvent, "payload and text exclude each other").At("text")
	}
	return nil
}

func (m *message) validate(maxPayload int) error {
	e := m.event(m.targets[0])
	if err := e.Validate(maxPayload); err != nil {
		return refusal(err)
	}
	if n := len(m.targets); m.list && n*len(m.payload) > maxCopies {
		return problem.New(problem.EventTooLarge,
			fmt.Sprintf("%d devices with %d bytes each are more than %d bytes", n, len(m.payload), maxCopies)).
			At("devices").Advise("Send the list in several requests, or address a group.")
	}
	return nil
}

func (m *message) event(target string) event.Event {
	return event.Event{Target: target, Type: m.typ, Payload: m.payload, Key: m.key, Idem: m.idem, Trace: m.trace}
}

// refusal turns what event.Validate says into a problem.
func refusal(err error) *problem.Document {
	var bad *event.Error
	switch {
	case errors.Is(err, event.ErrTooLarge):
		return problem.New(problem.EventTooLarge, err.Error()).At("payload")
	case errors.As(err, &bad) && bad.Field == "idem":
		return problem.New(problem.InvalidIdempotency, "the key "+bad.Reason).At("idem")
	case errors.As(err, &bad) && bad.Field == "group":
		return problem.New(problem.InvalidEvent, reasonOf(err)).At("device") // the member that holds "@group"
	case errors.As(err, &bad):
		return problem.New(problem.InvalidEvent, reasonOf(err)).At(bad.Field)
	default:
		return problem.New(problem.InvalidEvent, err.Error())
	}
}

func reasonOf(err error) string {
	if bad, ok := errors.AsType[*event.Error](err); ok {
		return bad.Field + " " + bad.Reason
	}
	return err.Error()
}
