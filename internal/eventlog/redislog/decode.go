package redislog

import (
	"unicode/utf8"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// The fields of an entry, as producers write them.
const (
	fieldDevice  = "dev"
	fieldType    = "type"
	fieldPayload = "payload"
	fieldKey     = "key"
	fieldIdem    = "idem"
	fieldTrace   = "trace"
)

// fields writes an event as the arguments of XADD; optional ones only if set.
func fields(args []string, e *event.Event) []string {
	args = append(args, fieldDevice, e.Target, fieldType, e.Type, fieldPayload, e.Payload)
	for _, f := range [][2]string{{fieldKey, e.Key}, {fieldIdem, e.Idem}, {fieldTrace, e.Trace}} {
		if f[1] != "" {
			args = append(args, f[0], f[1])
		}
	}
	return args
}

// overhead is what an entry costs in a reply beside its texts, roughly.
const overhead = 96

// entries reads what XRANGE and XREAD return of one stream, and how large the
// largest of them is. Whatever a producer wrote, only the fields of one entry
// can be bad.
func entries(m rueidis.RedisMessage, maxPayload int, seen *sizer) (out []eventlog.Entry, largest int, err error) {
	raw, err := m.ToArray()
	if err != nil {
		return nil, 0, oddReply(err)
	}
	out = make([]eventlog.Entry, 0, len(raw))
	for i := range raw {
		parts, err := raw[i].ToArray()
		if err != nil || len(parts) != 2 {
			return nil, 0, oddReply(err)
		}
		text, err := parts[0].ToString()
		if err != nil {
			return nil, 0, oddReply(err)
		}
		id, err := event.ParseID(text)
		if err != nil {
			return nil, 0, oddReply(err)
		}
		values, err := parts[1].ToArray()
		if err != nil {
			return nil, 0, oddReply(err)
		}
		entry, size := decode(id, values, maxPayload)
		seen.add(size)
		largest = max(largest, size)
		out = append(out, entry)
	}
	return out, largest, nil
}

// The places of the fields in what decode collects.
const (
	device = iota
	typ
	payload
	key
	idem
	trace
	places
)

func placeOf(field string) (place int, known bool) {
	switch field {
	case fieldDevice:
		return device, true
	case fieldType:
		return typ, true
	case fieldPayload:
		return payload, true
	case fieldKey:
		return key, true
	case fieldIdem:
		return idem, true
	case fieldTrace:
		return trace, true
	}
	return 0, false
}

// decode reads one entry's fields and values, in turns. Of a field that stands
// twice the first value counts; unknown fields are ignored.
func decode(id event.ID, values []rueidis.RedisMessage, maxPayload int) (eventlog.Entry, int) {
	var texts [places]string
	var have [places]bool
	size := overhead
	for i := 0; i+1 < len(values); i += 2 {
		name, _ := values[i].ToString()
		value, _ := values[i+1].ToString()
		size += len(name) + len(value)
		if place, known := placeOf(name); known && !have[place] {
			texts[place], have[place] = value, true
		}
	}
	e := event.Event{
		Target: texts[device], Type: texts[typ], Payload: texts[payload],
		Key: texts[key], Idem: texts[idem], Trace: texts[trace],
	}
	entry := eventlog.Entry{ID: id}
	switch entry.Fault = faultOf(&e, [3]bool(have[:]), maxPayload); entry.Fault {
	case "":
		entry.Event = e
	case eventlog.FaultTooLarge:
		entry.Event.Target = e.Target // its device is told to fetch its state
	}
	return entry, size
}

// faultOf looks at an entry; have is for device, type and payload.
func faultOf(e *event.Event, have [3]bool, maxPayload int) eventlog.Fault {
	if have != [3]bool{true, true, true} {
		return eventlog.FaultNoField
	}
	if fault := requiredFault(e, maxPayload); fault != "" {
		return fault
	}
	if e.Key == "" && e.Idem == "" && e.Trace == "" {
		return ""
	}
	// The rest was looked at; a payload is long.
	rest := event.Event{Target: event.Broadcast, Type: e.Type, Key: e.Key, Idem: e.Idem, Trace: e.Trace}
	if rest.Validate(0) != nil {
		return eventlog.FaultOptional
	}
	return ""
}

// requiredFault looks at device, type and payload.
func requiredFault(e *event.Event, maxPayload int) eventlog.Fault {
	if eventlog.AsksToLook(e) {
		return ""
	}
	if e.Target == event.ControlTarget {
		if _, err := eventlog.ReadControl(e); err != nil {
			return eventlog.FaultControl
		}
		return ""
	}
	if event.ValidateTarget(e.Target) != nil {
		return eventlog.FaultDevice
	}
	if event.ValidateType(e.Type) != nil {
		return eventlog.FaultType
	}
	if maxPayload > 0 && len(e.Payload) > maxPayload {
		return eventlog.FaultTooLarge
	}
	if !utf8.ValidString(e.Payload) {
		return eventlog.FaultPayload
	}
	return ""
}
