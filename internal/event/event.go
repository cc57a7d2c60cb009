// Package event owns the words of the product: the event, its ID and order,
// the rules for device IDs and types, and the shard function. It knows neither
// a log nor a wire. Its invariant: what Validate accepts can be stored in any
// log, sent in any frame, and read back as it was.
package event

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

// Limits of the contract, in bytes of UTF-8.
const (
	MaxDeviceBytes = 128
	MaxGroupBytes  = 128 // with its leading "@"
	MaxTypeBytes   = 128
	MaxKeyBytes    = 128
	MaxIdemBytes   = 256
	MaxTraceBytes  = 128
	MaxReasonBytes = 256 // of a control entry
)

const (
	// Broadcast is the target that means every device.
	Broadcast = "*"
	// GroupPrefix starts the target that means every device of a group.
	GroupPrefix = "@"
	// ControlTarget marks an entry that is for the gateways: an order about a
	// device. No device and no group can have that name.
	ControlTarget = "*control"
	// ResyncType is the type of our own resync frame; a producer that could
	// use it could make every device fetch its full state.
	ResyncType = "resync"
)

// An Event is what a producer sends.
type Event struct {
	Target  string // device ID, Broadcast, or GroupPrefix and a group's name
	Type    string
	Payload string
	Key     string // conflation key, may be empty
	Idem    string // idempotency key, may be empty
	Trace   string // W3C traceparent, may be empty
}

// An Error says which field of an event is wrong and why.
type Error struct {
	Field  string // "device", "group", "type", "payload", "key", "idem", "trace" or "reason"
	Reason string
}

func (e *Error) Error() string { return e.Field + ": " + e.Reason }

// ErrTooLarge is wrapped by Validate's error for a payload over the limit.
var ErrTooLarge = errors.New("payload is larger than max_event_bytes")

// Validate checks an event against the contract. maxPayload is in bytes; 0
// means no limit. The error is an *Error, or wraps ErrTooLarge.
func (e *Event) Validate(maxPayload int) error {
	if err := ValidateTarget(e.Target); err != nil {
		return err
	}
	if err := ValidateType(e.Type); err != nil {
		return err
	}
	if maxPayload > 0 && len(e.Payload) > maxPayload {
		return fmt.Errorf("%w: %d bytes, allowed are %d", ErrTooLarge, len(e.Payload), maxPayload)
	}
	if !utf8.ValidString(e.Payload) {
		return &Error{"payload", "is not valid UTF-8"}
	}
	if err := validateText("key", e.Key, 0, MaxKeyBytes); err != nil {
		return err
	}
	if err := validateText("idem", e.Idem, 0, MaxIdemBytes); err != nil {
		return err
	}
	return validateText("trace", e.Trace, 0, MaxTraceBytes)
}

// ValidateTarget accepts a device ID, Broadcast, or a group target.
func ValidateTarget(target string) error {
	switch {
	case target == Broadcast:
		return nil
	case strings.HasPrefix(target, GroupPrefix):
		return ValidateGroup(target[len(GroupPrefix):])
	default:
		return ValidateDevice(target)
	}
}

// ValidateDevice accepts a device ID: 1 to 128 bytes of UTF-8 without control
// characters that start with neither "*" nor "@".
func ValidateDevice(device string) error {
	if err := validateText("device", device, 1, MaxDeviceBytes); err != nil {
		return err
	}
	if device[0] == '*' || device[0] == '@' {
		return &Error{"device", `may not start with "*" (broadcast) or "@" (group)`}
	}
	return nil
}

// ValidateGroup accepts a group's name, without the "@" of its target. A name
// that begins with one is a mistake: events for "@north" would pass by the
// members of a group "@north".
func ValidateGroup(group string) error {
	if strings.HasPrefix(group, GroupPrefix) {
		return &Error{"group", `begins with "@": write a group's name without it`}
	}
	return validateText("group", group, 1, MaxGroupBytes-len(GroupPrefix))
}

// ValidateType accepts an event's type: 1 to 128 bytes of UTF-8 without
// control characters, and not ResyncType.
func ValidateType(typ string) error {
	if typ == ResyncType {
		return &Error{"type", `"resync" is reserved for the gateway's own frames; choose another name`}
	}
	return validateText("type", typ, 1, MaxTypeBytes)
}

// ValidateReason accepts what an operator says for other people: up to 256 bytes
// of UTF-8 without control characters, or nothing.
func ValidateReason(reason string) error { return validateText("reason", reason, 0, MaxReasonBytes) }

func validateText(field, s string, least, most int) error {
	if len(s) < least {
		return &Error{field, "is missing"}
	}
	if len(s) > most {
		return &Error{field, fmt.Sprintf("has %d bytes, allowed are %d", len(s), most)}
	}
	if !utf8.ValidString(s) {
		return &Error{field, "is not valid UTF-8"}
	}
	for _, r := range s {
		// C0, DEL, C1, and the two separators that some line readers split at.
		if r < 0x20 || (r >= 0x7f && r <= 0x9f) || r == '\u2028' || r == '\u2029' {
			return &Error{field, fmt.Sprintf("contains the control character U+%04X", r)}
		}
	}
	return nil
}

// ToAll reports whether a target is written to every shard.
func ToAll(target string) bool {
	return target == Broadcast || strings.HasPrefix(target, GroupPrefix)
}

// Shard is the shard of a device: CRC-32/ISO-HDLC of the ID's bytes, modulo
// the number of shards. Every language has that checksum.
//
// It is worked out byte by byte: the library's function wants a slice, and every
// gateway would allocate one for every event.
func Shard(device string, shards int) int {
	crc := ^uint32(0)
	for i := range len(device) {
		crc = crc32.IEEETable[byte(crc)^device[i]] ^ (crc >> 8)
	}
	return int(^crc % uint32(shards))
}
