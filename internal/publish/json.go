package publish

// A scanner walks over JSON text (RFC 8259) that is valid UTF-8, and notices
// where it isn't JSON: exactly where encoding/json does.
type scanner struct {
	text   string
	at     int
	depth  int
	broken bool // an object or array ended where it may not
}

// maxDepth of nested objects and arrays, as in encoding/json.
const maxDepth = 10000

// next skips white space and returns the byte after it; 0, which is nowhere
// allowed, at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// enter goes into the object or array that starts here, and reports whether it
// has a member; end is the bracket that closes it.
func (s *scanner) enter(end byte) bool {
	s.at++
	if s.depth++; s.depth > maxDepth {
		s.broken = true
		return false
	}
	if s.next() == end {
		return s.leave()
	}
	return true
}

// more goes on to the next member, and reports whether there is one.
func (s *scanner) more(end byte) bool {
	switch s.next() {
	case ',':
		s.at++
		return true
	case end:
		return s.leave()
	default:
		s.broken = true
		return false
	}
}

func (s *scanner) leave() bool {
	s.at++
	s.depth--
	return false
}

// key is the name of a member, in its quotes; what comes next is its value.
func (s *scanner) key() (raw string, ok bool) {
	if s.next() != '"' {
		return "", false
	}
	start := s.at
	if !s.skipString() {
		return "", false
	}
	raw = s.text[start:s.at]
	if s.next() != ':' {
		return "", false
	}
	s.at++
	return raw, true
}

// value is the text of the value that comes next.
func (s *scanner) value() (raw string, ok bool) {
	s.next()
	start := s.at
	ok = s.skip()
	return s.text[start:s.at], ok
}

// skip skips the value that comes next, and reports whether it is one.
func (s *scanner) skip() bool {
	switch c := s.next(); c {
	case '"':
		return s.skipString()
	case '{':
		for more := s.enter('}'); more; more = s.more('}') {
			if _, ok := s.key(); !ok || !s.skip() {
				return false
			}
		}
		return !s.broken
	case '[':
		for more := s.enter(']'); more; more = s.more(']') {
			if !s.skip() {
				return false
			}
		}
		return !s.broken
	case 't':
		return s.skipWord("true")
	case 'f':
		return s.skipWord("false")
	case 'n':
		return s.skipWord("null")
	default:
		return s.skipNumber()
	}
}

func (s *scanner) skipWord(word string) bool {
	end := s.at + len(word)
	if end > len(s.text) || s.text[s.at:end] != word {
		return false
	}
	s.at = end
	return true
}

func (s *scanner) skipString() bool {
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return true
		case c < ' ':
			return false
		case c == '\\':
			n := escapeLen(s.text[i+1:])
			if n == 0 {
				return false
			}
			i += n
		}
	}
	return false
}

// escapeLen is how many bytes belong to the backslash before them, 0 if they
// are no escape.
func escapeLen(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(s) >= 5 && isHex(s[1]) && isHex(s[2]) && isHex(s[3]) && isHex(s[4]) {
			return 5
		}
	}
	return 0
}

func isHex(c byte) bool {
	return isDigit(c) || ('a' <= c && c <= 'f') || ('A' <= c && c <= 'F')
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) skipNumber() bool {
	s.skipByte('-')
	if !s.skipByte('0') && !s.skipDigits() {
		return false
	}
	if s.skipByte('.') && !s.skipDigits() {
		return false
	}
	if s.skipByte('e') || s.skipByte('E') {
		if !s.skipByte('+') {
			s.skipByte('-')
		}
		return s.skipDigits()
	}
	return true
}

func (s *scanner) skipByte(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// skipDigits reports whether there is a digit.
func (s *scanner) skipDigits() bool {
	start := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		s.at++
	}
	return s.at > start
}
