// Package strictjson owns the reading of one JSON object whose members decide
// about rights and orders. It doesn't know what they mean. Its invariant: no two
// programs can understand an object that it accepts differently: names are
// compared exactly, none that counts stands twice, and the text is UTF-8.
// (encoding/json takes "DEVICE" for "device", and the last of two.)
package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// A Fault is what is wrong with an object.
type Fault string

// The faults.
const (
	NoObject  Fault = "isn't one JSON object"
	Twice     Fault = "stands twice"
	Unknown   Fault = "isn't known"
	WrongKind Fault = "has the wrong type"
)

// An Error names a member, the beginning of it if it is long: that is text of
// whoever has sent the object. For NoObject it is empty.
type Error struct {
	Fault  Fault
	Member string
}

func (e *Error) Error() string {
	if e.Member == "" {
		return "the text " + string(e.Fault)
	}
	return "the member " + e.Member + " " + string(e.Fault)
}

// Read decodes each member of the object in data into what members has under its
// name: pointers, as for json.Unmarshal. A member that members doesn't have is
// an error. The error is an *Error; what was decoded before it stays so.
func Read(data []byte, members map[string]any) error { return read(data, members, true) }

// Pick is like Read, and passes over members that it wasn't asked for.
func Pick(data []byte, members map[string]any) error { return read(data, members, false) }

func read(data []byte, members map[string]any, all bool) error {
	if !utf8.Valid(data) || !json.Valid(data) || bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
		return &Error{Fault: NoObject}
	}
	in := json.NewDecoder(bytes.NewReader(data))
	_, _ = in.Token() // the brace; valid JSON has no errors
	seen := make(map[string]bool, len(members))
	for in.More() {
		token, _ := in.Token()
		name, _ := token.(string)
		var value json.RawMessage
		_ = in.Decode(&value)
		into, known := members[name]
		switch {
		case !known && all:
			return &Error{Unknown, clip(name)}
		case !known:
			continue
		case seen[name]:
			return &Error{Twice, name}
		}
		seen[name] = true
		if json.Unmarshal(value, into) != nil {
			return &Error{WrongKind, name}
		}
	}
	return nil
}

func clip(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}
