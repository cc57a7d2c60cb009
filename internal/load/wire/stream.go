// Package wire owns the receiving end of an event stream for a generator of
// load: one HTTP/1.1 response, read from any cut of bytes, down to events and
// the markers in them. It owns no socket and keeps no text of an event. Its
// invariant: how the bytes are cut changes nothing of what is reported, and an
// event is reported only once its blank line has come, as a browser does.
//
// The product's own parser (package frame) keeps all of an event and reads from
// an io.Reader, which a process with 18,000 streams can't afford.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxHead bounds a response's head, in bytes.
const maxHead = 64 << 10

// ErrMalformed is wrapped by Feed's error for bytes that are no HTTP/1.1 response.
var ErrMalformed = errors.New("the answer is not HTTP/1.1")

// ErrContentType is Feed's error for an answer of 200 that says itself that it
// is something else than an event stream, such as a login page. One that says
// nothing is taken as it is.
var ErrContentType = errors.New("the answer is not an event stream (Content-Type: text/event-stream)")

// A Sink takes what a stream holds, during Feed.
type Sink interface {
	// Head is called once, when the response's head is complete.
	Head(status int)
	// Event is called for each event; e is valid until it returns.
	Event(e *Event)
}

// phase is where in a response the next byte stands.
type phase uint8

const (
	inStatus    phase = iota
	inHeader          // after the status line
	inInterim         // the header of a 1xx answer, which another one follows
	inBody            // until left is used up, or the connection ends
	inSize            // the digits of a chunk's size
	inExtension       // what follows them on their line
	inChunk           // left bytes of a chunk
	inChunkEnd        // the line end after a chunk
	inTrailer         // a line after the last chunk, at its start
	inTrailerLine
	over
)

// A Stream is the state of one response. Its zero value is ready; it is used
// by one goroutine at a time. It holds no buffer between two events.
type Stream struct {
	left   int64 // bytes left of the chunk or body; -1 without a bound
	head   int32 // bytes of the head so far
	status uint16
	phase  phase
	digits bool // a chunk's size has one
	other  bool // the answer is of another type
	KeepID bool // keep last event IDs, for LastID
	events
}

// Reset makes the stream ready for another response. The last event ID stays,
// as it does in a browser that reconnects.
func (s *Stream) Reset(scratch *Scratch) {
	scratch.put(s.carry)
	*s = Stream{KeepID: s.KeepID, events: events{last: s.last, next: s.next[:0]}}
}

// LastID is the ID of the last event; empty if there was none, or without
// KeepID. It is valid until the next Feed.
func (s *Stream) LastID() []byte { return s.last }

// Status is the response's status; 0 while it isn't known.
func (s *Stream) Status() int { return int(s.status) }

// Feed reads the next bytes of the response and reports what they complete.
// It returns io.EOF when the response has ended in order, and an error that
// wraps ErrMalformed when it can't be read on.
func (s *Stream) Feed(b []byte, scratch *Scratch, sink Sink) error {
	for len(b) > 0 {
		var err error
		switch s.phase {
		case inStatus, inHeader, inInterim:
			b, err = s.readHead(b, scratch, sink)
		case inBody:
			b = s.readBody(b, scratch, sink)
		case inChunk:
			b = s.readChunk(b, scratch, sink)
		case over:
			return io.EOF // whatever follows was not asked for
		default:
			err = s.frameByte(b[0])
			b = b[1:]
		}
		if err != nil {
			return err
		}
	}
	if s.phase == over {
		return io.EOF
	}
	return nil
}

// readHead takes a line of the head, or keeps the beginning of one.
func (s *Stream) readHead(b []byte, scratch *Scratch, sink Sink) ([]byte, error) {
	i := bytes.IndexByte(b, '\n')
	taken := i + 1
	if i < 0 {
		taken = len(b)
	}
	if s.head += int32(taken); s.head > maxHead {
		return nil, fmt.Errorf("%w: its head has more than %d bytes", ErrMalformed, maxHead)
	}
	if i < 0 {
		s.carry = append(scratch.ensure(s.carry), b...)
		return nil, nil
	}
	line := b[:i]
	if s.carry != nil {
		s.carry = append(s.carry, line...)
		line = s.carry
	}
	err := s.headLine(bytes.TrimSuffix(line, []byte("\r")), sink)
	scratch.put(s.carry)
	s.carry = nil
	return b[taken:], err
}

func (s *Stream) headLine(line []byte, sink Sink) error {
	switch {
	case s.phase == inStatus:
		return s.statusLine(line)
	case len(line) > 0:
		if s.phase == inHeader {
			return s.field(line)
		}
		return nil
	case s.phase == inInterim:
		s.phase = inStatus
		return nil
	}
	if s.other && s.status == 200 {
		return ErrContentType
	}
	sink.Head(int(s.status))
	switch {
	case s.left == chunked:
		s.left, s.phase = 0, inSize
	case s.left == 0 || s.status == 204 || s.status == 304:
		s.phase = over
	default:
		s.phase = inBody
	}
	return nil
}

// Values of left while the head is read.
const (
	unbounded = -1
	chunked   = -2
)

func (s *Stream) statusLine(line []byte) error {
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return fmt.Errorf("%w: it begins with %q", ErrMalformed, line[:min(len(line), 40)])
	}
	code, err := strconv.ParseUint(string(line[9:12]), 10, 16)
	if err != nil || code < 100 {
		return fmt.Errorf("%w: its status is %q", ErrMalformed, line[9:12])
	}
	s.status, s.left, s.phase = uint16(code), unbounded, inHeader
	if code < 200 {
		s.phase = inInterim
	}
	return nil
}

// field takes what frames the body; RFC 9112 §6.3 lets Transfer-Encoding win.
func (s *Stream) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return fmt.Errorf("%w: its head has the line %q", ErrMalformed, line[:min(len(line), 40)])
	}
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("%w that can be read here: its Transfer-Encoding is %q", ErrMalformed, value[:min(len(value), 40)])
		}
		s.left = chunked
	case bytes.EqualFold(name, []byte("Content-Length")) && s.left != chunked:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%w: its Content-Length is %q", ErrMalformed, value[:min(len(value), 40)])
		}
		s.left = n
	case bytes.EqualFold(name, []byte("Content-Type")):
		essence, _, _ := bytes.Cut(value, []byte(";"))
		s.other = !bytes.EqualFold(bytes.TrimSpace(essence), []byte("text/event-stream"))
	}
	return nil
}

func (s *Stream) readBody(b []byte, scratch *Scratch, sink Sink) []byte {
	if s.left == unbounded {
		s.feed(b, s.KeepID, scratch, sink)
		return nil
	}
	n := min(int64(len(b)), s.left)
	s.feed(b[:n], s.KeepID, scratch, sink)
	if s.left -= n; s.left == 0 {
		s.phase = over
	}
	return b[n:]
}

func (s *Stream) readChunk(b []byte, scratch *Scratch, sink Sink) []byte {
	n := min(int64(len(b)), s.left)
	s.feed(b[:n], s.KeepID, scratch, sink)
	if s.left -= n; s.left == 0 {
		s.phase = inChunkEnd
	}
	return b[n:]
}

// frameByte takes one byte of what stands around the chunks.
func (s *Stream) frameByte(c byte) error {
	switch s.phase {
	case inSize:
		return s.sizeByte(c)
	case inExtension:
		if c == '\n' {
			s.startChunk()
		}
	case inChunkEnd:
		if c == '\n' {
			s.phase = inSize
		} else if c != '\r' {
			return fmt.Errorf("%w: a chunk is longer than it said", ErrMalformed)
		}
	case inTrailer:
		if c == '\n' {
			s.phase = over
		} else if c != '\r' {
			s.phase = inTrailerLine
		}
	case inTrailerLine:
		if c == '\n' {
			s.phase = inTrailer
		}
	}
	return nil
}

func (s *Stream) sizeByte(c byte) error {
	digit := int64(-1)
	switch {
	case c >= '0' && c <= '9':
		digit = int64(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		digit = int64(c|0x20-'a') + 10
	case c == '\n' && s.digits:
		s.startChunk()
		return nil
	case (c == '\r' || c == ';' || c == ' ' || c == '\t') && s.digits:
		s.phase = inExtension
		return nil
	}
	if digit < 0 || s.left >= 1<<56 {
		return fmt.Errorf("%w: a chunk's size can't be read", ErrMalformed)
	}
	s.left, s.digits = s.left<<4|digit, true
	return nil
}

func (s *Stream) startChunk() {
	s.phase, s.digits = inChunk, false
	if s.left == 0 {
		s.phase = inTrailer
	}
}
