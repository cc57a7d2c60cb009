package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"downlink/internal/problem"
)

// members calls yield for each member of the JSON object in body, with the
// member's raw value, which is a part of body. The standard decoder isn't used
// for it because it takes the last of two equal members, ignores the case of
// names, and puts U+FFFD in the place of what it can't read, all in silence.
func members(body []byte, yield func(name string, raw []byte) error) error {
	if err := validJSON(body); err != nil {
		return err
	}
	// From here on the text is known to be one valid JSON value.
	s := scanner{text: body}
	if s.next() != '{' {
		return problem.New(problem.InvalidJSON, "the body is JSON, but not an object")
	}
	s.at++
	for s.next() != '}' {
		name, err := unquote(s.value())
		if err != nil {
			return err
		}
		s.next() // at the colon
		s.at++
		s.next()
		if err := yield(name, s.value()); err != nil {
			return err
		}
		if s.next() == ',' {
			s.at++
		}
	}
	return nil
}

func validJSON(body []byte) error {
	if !utf8.Valid(body) {
		return problem.New(problem.InvalidJSON, "the body isn't valid UTF-8")
	}
	if json.Valid(body) {
		return nil
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		return problem.New(problem.InvalidJSON, fmt.Sprintf("%s, at byte %d", syntax, syntax.Offset))
	}
	return problem.New(problem.InvalidJSON, "the body can't be read")
}

// A scanner walks over valid JSON.
type scanner struct {
	text []byte
	at   int
}

// next skips white space and returns the byte after it.
func (s *scanner) next() byte {
	for {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
}

// value skips the value that starts here and returns its text.
func (s *scanner) value() []byte {
	start, depth := s.at, 0
	for {
		switch s.text[s.at] {
		case '"':
			s.skipString()
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			depth--
			s.at++
		default:
			s.skipPlain()
		}
		if depth == 0 {
			return s.text[start:s.at]
		}
	}
}

func (s *scanner) skipString() {
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
}

// skipPlain skips a number, a literal, or what stands between values.
func (s *scanner) skipPlain() {
	n := bytes.IndexAny(s.text[s.at:], "\"{}[], \t\r\n")
	switch {
	case n < 0:
		s.at = len(s.text)
	case n == 0:
		s.at++ // a comma or white space inside of an array or object
	default:
		s.at += n
	}
}

// elements calls yield for each element of the JSON array in raw.
func elements(raw []byte, yield func(raw []byte) error) error {
	s := scanner{text: raw, at: 1}
	for s.next() != ']' {
		if err := yield(s.value()); err != nil {
			return err
		}
		if s.next() == ',' {
			s.at++
		}
	}
	return nil
}

// unquote reads a JSON string.
func unquote(raw []byte) (string, error) {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	if loneSurrogate(inner) {
		return "", problem.New(problem.InvalidJSON, `a string holds half of a surrogate pair (\ud800 to \udfff), which is no character`)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", problem.New(problem.InvalidJSON, "a string can't be read")
	}
	return text, nil
}

// loneSurrogate reports a \u escape that is half of a pair. The standard
// decoder would store U+FFFD instead of it.
func loneSurrogate(inner []byte) bool {
	high := -1 // where the low half would have to start
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			continue
		}
		i++
		if inner[i] != 'u' {
			continue
		}
		// D8 to DB is a high half, DC to DF a low one.
		hex := strings.ToLower(string(inner[i+1 : i+3]))
		isHigh, isLow := hex >= "d8" && hex <= "db", hex >= "dc" && hex <= "df"
		if isLow != (high == i-1 && high >= 0) {
			return true
		}
		if high >= 0 && !isLow {
			return true
		}
		high = -1
		if i += 4; isHigh {
			high = i + 1
		}
	}
	return high >= 0
}
