package jwt

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"downlink/internal/strictjson"
)

// A Value is the value of a claim, as JSON; nil if the token doesn't have it.
type Value []byte

// Absent reports whether there is none, or null.
func (v Value) Absent() bool { return v == nil || string(v) == "null" }

// Text reads a value that must be a string, of whole characters: two halves that
// an issuer tells apart would become one name here.
func (v Value) Text() (text string, ok bool) {
	if len(v) == 0 || v[0] != '"' || strictjson.HalfPair(v) {
		return "", false
	}
	return string(unescaped(v)), true
}

// Texts reads a value that is a string or a list of strings.
func (v Value) Texts() (texts []string, ok bool) {
	if one, ok := v.Text(); ok {
		return []string{one}, true
	}
	all := true
	ok = elements(v, func(value []byte) {
		s, ok := Value(value).Text()
		all = all && ok
		texts = append(texts, s)
	})
	return texts, ok && all
}

// members calls each with every member of a JSON object, in its order; false
// if the data is no object. encoding/json would do it with a map, in three
// times the time, or into a struct, where it takes a member "SUB" for "sub".
func members(data []byte, each func(name, value []byte)) bool {
	if !utf8.Valid(data) || !json.Valid(data) {
		return false
	}
	w := walk{bytes.TrimSpace(data)}
	if w.rest[0] != '{' {
		return false
	}
	for w.next('}') {
		name := w.value()
		w.skip(':')
		each(unescaped(name), w.value())
	}
	return true
}

// elements calls each with every element of a list that stands in valid JSON;
// false if it is no list.
func elements(list []byte, each func(value []byte)) bool {
	w := walk{list}
	if len(list) == 0 || list[0] != '[' {
		return false
	}
	for w.next(']') {
		each(w.value())
	}
	return true
}

// walk goes over valid JSON, and only over that.
type walk struct{ rest []byte }

// next steps over what stands before a member or element; false at the end.
func (w *walk) next(end byte) bool {
	if w.rest[0] == end {
		return false
	}
	w.rest = bytes.TrimLeft(w.rest[1:], " \t\r\n") // the opening bracket, or a comma
	return w.rest[0] != end
}

// skip steps over a character and the space around it.
func (w *walk) skip(c byte) {
	w.rest = bytes.TrimLeft(w.rest, " \t\r\n"+string(c))
}

// value takes the next value, and the space after it.
func (w *walk) value() []byte {
	n := length(w.rest)
	value := w.rest[:n]
	w.rest = bytes.TrimLeft(w.rest[n:], " \t\r\n")
	return value
}

// length of the value that the data begins with.
func length(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			if end := bytes.IndexAny(data[i:], ",]} \t\r\n"); end >= 0 {
				return i + end
			}
			return len(data)
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(data)
}

// unescaped is what a JSON string says.
func unescaped(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var s string
	_ = json.Unmarshal(text, &s) // it is valid
	return []byte(s)
}
