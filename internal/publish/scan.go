package publish

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"downlink/internal/problem"
	"downlink/internal/strictjson"
)

// members calls yield for each member of the JSON object in text, with the
// member's raw value, which is a part of text. The standard decoder isn't used
// for it because it takes the last of two equal members, ignores the case of
// names, and puts U+FFFD in the place of what it can't read, all in silence;
// it also takes twice the time.
func members(text string, yield func(name, raw string) error) error {
	if !utf8.ValidString(text) {
		return problem.New(problem.InvalidJSON, "the body isn't valid UTF-8")
	}
	err := walk(text, yield)
	if err == nil {
		return nil
	}
	// That the text is no JSON goes before what is wrong inside of it, and the
	// standard decoder says it well.
	if fault := invalidJSON(text); fault != nil {
		return fault
	}
	if errors.Is(err, errSyntax) { // what walk can't read, the decoder can't either
		return problem.New(problem.InvalidJSON, "the body can't be read")
	}
	return err
}

// errSyntax says that walk doesn't know JSON when it sees it.
var errSyntax = errors.New("not a JSON value")

func walk(text string, yield func(name, raw string) error) error {
	s := scanner{text: text}
	if s.next() != '{' {
		if !s.skip() || s.next() != 0 || s.at < len(text) {
			return errSyntax
		}
		return problem.New(problem.InvalidJSON, "the body is JSON, but not an object")
	}
	for more := s.enter('}'); more; more = s.more('}') {
		raw, ok := s.key()
		if !ok {
			return errSyntax
		}
		name, err := unquote(raw)
		if err != nil {
			return err
		}
		value, ok := s.value()
		if !ok {
			return errSyntax
		}
		if err := yield(name, value); err != nil {
			return err
		}
	}
	if s.broken || s.next() != 0 || s.at < len(text) {
		return errSyntax
	}
	return nil
}

// invalidJSON is why a text isn't JSON, or nil.
func invalidJSON(text string) error {
	body := []byte(text)
	if json.Valid(body) {
		return nil
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		return problem.New(problem.InvalidJSON, fmt.Sprintf("%s, at byte %d", syntax, syntax.Offset))
	}
	return problem.New(problem.InvalidJSON, "the body can't be read")
}

// elements calls yield for each element of the JSON array in raw, which members
// has found to be valid.
func elements(raw string, yield func(raw string) error) error {
	s := scanner{text: raw}
	for more := s.enter(']'); more; more = s.more(']') {
		value, ok := s.value()
		if !ok {
			return errSyntax
		}
		if err := yield(value); err != nil {
			return err
		}
	}
	return nil
}

// unquote reads a JSON string.
func unquote(raw string) (string, error) {
	inner := raw[1 : len(raw)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	if strictjson.HalfPair(inner) {
		return "", problem.New(problem.InvalidJSON, `a string holds half of a surrogate pair (\ud800 to \udfff), which is no character`)
	}
	var text string
	if err := json.Unmarshal([]byte(raw), &text); err != nil {
		return "", problem.New(problem.InvalidJSON, "a string can't be read")
	}
	return text, nil
}
