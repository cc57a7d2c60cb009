// Package strictjson owns the reading of one JSON object whose members decide
// about rights and orders. It doesn't know what they mean. Its invariant: no two
// programs can understand an object that it accepts differently: names are
// compared exactly, none that counts stands twice or holds half a character, and
// the text is UTF-8. (encoding/json takes "DEVICE" for "device", the last of two,
// and U+FFFD for half of a surrogate pair.)
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
		if HalfPair(value) || json.Unmarshal(value, into) != nil {
			return &Error{WrongKind, name}
		}
	}
	return nil
}

// HalfPair reports whether a string in valid JSON holds a \u escape that is half
// of a surrogate pair, which is no character. encoding/json reads each of them as
// U+FFFD: what differs in another program would be equal here.
func HalfPair[T ~string | ~[]byte](text T) bool {
	due := -1 // where the low half of a pair has to stand
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		at := i
		if i++; text[i] != 'u' {
			continue
		}
		// D8 to DB is a high half, DC to DF a low one.
		half := text[i+1]|0x20 == 'd' && text[i+2] >= '8'
		low := half && text[i+2]|0x20 >= 'c'
		if due >= 0 && due != at || low != (due == at) {
			return true
		}
		if due = -1; half && !low {
			due = at + len(`\uD800`)
		}
		i += 4
	}
	return due >= 0
}

func clip(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}
