package filelog

import (
	"encoding/binary"
	"errors"
	"strings"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

var errCorrupt = errors.New("a stored value can't be decoded")

func fields(e *event.Event) [6]*string {
	return [6]*string{&e.Target, &e.Type, &e.Payload, &e.Key, &e.Idem, &e.Trace}
}

// eventSize is the size of an event's stored form.
func eventSize(e *event.Event) int {
	n := 0
	for _, f := range fields(e) {
		n += uvarintSize(uint64(len(*f))) + len(*f)
	}
	return n
}

func uvarintSize(x uint64) int {
	n := 1
	for ; x >= 0x80; x >>= 7 {
		n++
	}
	return n
}

// appendEvent adds the stored form: each field as its length and its bytes.
func appendEvent(dst []byte, e *event.Event) []byte {
	for _, f := range fields(e) {
		dst = binary.AppendUvarint(dst, uint64(len(*f)))
		dst = append(dst, *f...)
	}
	return dst
}

// decodeEntry reads what appendEvent wrote. A payload over maxEvent was stored
// while the limit was higher; it is dropped here, and the fault says so.
func decodeEntry(id event.ID, value []byte, maxEvent int) (eventlog.Entry, error) {
	e := eventlog.Entry{ID: id}
	// One string holds all fields: one allocation, and nothing of pebble's
	// buffer is kept.
	rest := string(value)
	for _, f := range fields(&e.Event) {
		field, after, err := cutField(rest)
		if err != nil {
			return eventlog.Entry{}, err
		}
		*f, rest = field, after
	}
	if len(e.Event.Payload) > maxEvent && e.Event.Target != event.ControlTarget {
		target := strings.Clone(e.Event.Target) // lets go of the payload's memory
		return eventlog.Entry{ID: id, Event: event.Event{Target: target}, Fault: eventlog.FaultTooLarge}, nil
	}
	return e, nil
}

// targetOf reads only whom a stored event is for, without copying the rest.
func targetOf(value []byte) (string, error) {
	n, size := binary.Uvarint(value)
	if size <= 0 || n > uint64(len(value)-size) {
		return "", errCorrupt
	}
	return string(value[size : size+int(n)]), nil
}

func cutField(s string) (field, rest string, err error) {
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(len(s)-size) {
		return "", "", errCorrupt
	}
	return s[size : size+int(n)], s[size+int(n):], nil
}

// A stored is what an idempotency key stands for.
type stored struct {
	at          uint64 // ms of the log's clock at which the last of it was stored
	fingerprint string
	ids         []event.ID
}

func (s stored) encode() []byte {
	b := binary.AppendUvarint(nil, s.at)
	b = binary.AppendUvarint(b, uint64(len(s.fingerprint)))
	b = append(b, s.fingerprint...)
	for _, id := range s.ids {
		b = appendID(b, id)
	}
	return b
}

func decodeStored(b []byte) (stored, error) {
	at, n := binary.Uvarint(b)
	if n <= 0 {
		return stored{}, errCorrupt
	}
	fingerprint, rest, err := cutField(string(b[n:]))
	if err != nil || len(rest)%idBytes != 0 {
		return stored{}, errCorrupt
	}
	s := stored{at: at, fingerprint: fingerprint}
	for ids := []byte(rest); len(ids) > 0; ids = ids[idBytes:] {
		s.ids = append(s.ids, decodeID(ids))
	}
	return s, nil
}

// last is the highest of the IDs.
func (s stored) last() event.ID {
	var last event.ID
	for _, id := range s.ids {
		last = event.Max(last, id)
	}
	return last
}
