package wire

import "bytes"

// maxLine bounds what is kept of an unfinished line, in bytes.
const maxLine = 64 << 10

// A Kind tells the gateway's own frames from a producer's events.
type Kind uint8

// The kinds of events.
const (
	Plain  Kind = iota
	Resync      // "event: resync": fetch your full state
)

// An Event is what is told of one event of a stream.
type Event struct {
	Kind Kind
	Mark Mark // Marked is false where the event holds none
}

// Scratch is what the streams of one goroutine share: the buffers in which
// lines that were cut are put together, and the event that is being reported.
// Its zero value is ready.
type Scratch struct {
	free  [][]byte
	event Event
}

func (s *Scratch) ensure(b []byte) []byte {
	if b != nil {
		return b
	}
	if n := len(s.free); n > 0 {
		b = s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	return make([]byte, 0, 512)
}

// maxFree bounds the buffers that are kept for the next cut line; those that
// grew over 8 KiB are not worth keeping.
const maxFree = 64

func (s *Scratch) put(b []byte) {
	if b != nil && len(s.free) < maxFree && cap(b) <= 8<<10 {
		s.free = append(s.free, b[:0])
	}
}

// events is the state of a stream's body. The rules are those of the WHATWG
// HTML standard, section "Interpreting an event stream".
type events struct {
	carry      []byte // the beginning of a line whose end hasn't come
	last, next []byte // IDs: of the last event, and of the next one if named
	mark       Mark   // of the next event
	kind       Kind   // of the next event
	data       bool   // the next event has data
	named      bool   // the next event has an ID
	begun      bool   // a line was read, so no byte order mark can come
	afterCR    bool   // an LF that comes now belongs to the line before
}

func (s *events) feed(b []byte, keepID bool, scratch *Scratch, sink Sink) {
	for len(b) > 0 {
		if s.afterCR {
			s.afterCR = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		i := lineEnd(b)
		if i < 0 {
			s.carry = append(scratch.ensure(s.carry), b...)
			if len(s.carry) > maxLine {
				s.shorten(scratch, sink)
			}
			return
		}
		if s.carry == nil {
			s.line(b[:i], keepID, scratch, sink)
		} else {
			whole := append(s.carry, b[:i]...)
			s.carry = nil
			s.line(whole, keepID, scratch, sink)
			scratch.put(whole)
		}
		s.afterCR = b[i] == '\r'
		b = b[i+1:]
	}
}

// lineEnd is the index of the first CR or LF, or -1.
func lineEnd(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i >= 0 {
		b = b[:i]
	}
	if j := bytes.IndexByte(b, '\r'); j >= 0 {
		return j
	}
	return i
}

// shorten looks for markers in a line that is too long to be kept, and keeps
// its field and what may be the beginning of a marker.
func (s *events) shorten(scratch *Scratch, sink Sink) {
	if !bytes.HasPrefix(s.carry, []byte("data:")) {
		s.carry = append(s.carry[:0], ':') // read on as a comment: no such ID or type is of use
		return
	}
	tail := s.scan(s.carry, scratch, sink)
	tail = tail[max(0, len(tail)-maxMark):]
	n := len("data:") + copy(s.carry[len("data:"):], tail)
	s.carry = s.carry[:n]
}

func (s *events) line(line []byte, keepID bool, scratch *Scratch, sink Sink) {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
	}
	if len(line) == 0 {
		s.dispatch(scratch, sink)
		return
	}
	switch line[0] {
	case 'd':
		if _, ok := field(line, "data"); ok {
			s.data = true
			s.scan(line, scratch, sink)
		}
	case 'i':
		if value, ok := field(line, "id"); ok && keepID && bytes.IndexByte(value, 0) < 0 {
			s.next, s.named = append(s.next[:0], value...), true
		}
	case 'e':
		if value, ok := field(line, "event"); ok {
			s.kind = Plain
			if string(value) == "resync" {
				s.kind = Resync
			}
		}
	}
}

// field is the value of a line if the line is of that field.
func field(line []byte, name string) (value []byte, ok bool) {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return nil, false
	}
	switch value = line[len(name):]; {
	case len(value) == 0:
		return value, true
	case value[0] != ':':
		return nil, false
	}
	return bytes.TrimPrefix(value[1:], []byte(" ")), true
}

// scan takes the markers of a data line and returns what follows the last.
// An event with several, as of a server that packs, is reported once for each.
func (s *events) scan(line []byte, scratch *Scratch, sink Sink) []byte {
	for {
		mark, rest, ok := FindMark(line)
		if !ok {
			return line
		}
		if s.mark.Marked {
			scratch.event = Event{Kind: s.kind, Mark: s.mark}
			sink.Event(&scratch.event)
		}
		s.mark, line = mark, rest
	}
}

// dispatch ends an event. The last event ID moves without data, too.
func (s *events) dispatch(scratch *Scratch, sink Sink) {
	if s.named {
		s.last, s.next = s.next, s.last
	}
	if s.data {
		scratch.event = Event{Kind: s.kind, Mark: s.mark}
		sink.Event(&scratch.event)
	}
	s.mark, s.kind, s.data, s.named = Mark{}, Plain, false, false
}
