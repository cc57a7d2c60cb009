package frame

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"
)

// DefaultMaxBlock is how many bytes a Parser holds of one block unless told
// otherwise: an event of 10 MiB fits, whatever its lines.
const DefaultMaxBlock = 16 << 20

// keepBuffer is the largest buffer that a Parser keeps after an event, so that
// one large event doesn't cost its memory for the rest of the stream.
const keepBuffer = 64 << 10

// ErrBlockTooLarge says that an event of the stream is over the parser's limit.
// The stream can't be read on: its next bytes belong to that event.
var ErrBlockTooLarge = errors.New("an event in the stream is larger than this reader accepts")

// An Event is what a blank line in the stream yields.
type Event struct {
	// ID is the last event ID after this block; the block itself set it if HasID.
	ID    string
	HasID bool
	// Position says that the block had no data: the ID moved and nothing else
	// happened. Type and Data are empty then.
	Position bool
	Type     string // "message" if the block named none
	Data     string // its lines joined with LF; valid UTF-8
}

// A Parser reads one text/event-stream after the other, in chunks of any size,
// and dispatches an event with the byte that completes it. It is not safe for
// concurrent use. The zero value is ready.
//
// It holds one unfinished block at most; comments and unknown fields are not
// held at all. A block that the stream doesn't finish is dropped, its ID too.
type Parser struct {
	// MaxBlock bounds the bytes held of one block; 0 means DefaultMaxBlock.
	MaxBlock int

	// Kept from stream to stream.
	lastID   string
	retry    time.Duration
	hasRetry bool

	// Of the stream.
	bom    int    // how many bytes of a BOM have been seen at its start; -1: past it
	skipLF bool   // the last line ended with CR: an LF now belongs to it
	line   []byte // the unfinished line
	skip   bool   // the unfinished line means nothing; line holds nothing of it
	err    error

	// Of the block.
	id    []byte
	hasID bool
	typ   []byte
	data  []byte // each line followed by LF
}

const bom = "\xEF\xBB\xBF"

// Reset begins another stream after lastID, which is what the reader asked
// for. Reset(p.LastID()) is what a reconnect does; the delay is kept.
func (p *Parser) Reset(lastID string) {
	*p = Parser{
		MaxBlock: p.MaxBlock, lastID: lastID, retry: p.retry, hasRetry: p.hasRetry,
		line: reuse(p.line), id: reuse(p.id), typ: reuse(p.typ), data: reuse(p.data),
	}
}

// LastID is the last event ID of the stream so far; empty if it has none.
func (p *Parser) LastID() string { return p.lastID }

// Retry is the delay before a reconnect that the stream asked for last; ok is
// false if it never did. Delays beyond time.Duration are the longest there is.
func (p *Parser) Retry() (delay time.Duration, ok bool) { return p.retry, p.hasRetry }

// Feed reads the next chunk and calls yield for each event in it, in order. It
// returns the first error of yield, or one that wraps ErrBlockTooLarge; the
// rest of the chunk is lost then, and so is the stream: until Reset, Feed
// returns that error again. The chunk isn't kept.
func (p *Parser) Feed(chunk []byte, yield func(Event) error) error {
	if p.bom >= 0 {
		chunk = p.start(chunk)
	}
	for len(chunk) > 0 && p.err == nil {
		if p.skipLF {
			p.skipLF = false
			if chunk[0] == '\n' {
				chunk = chunk[1:]
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			p.err = p.hold(chunk)
			break
		}
		p.skipLF = chunk[end] == '\r'
		p.err = p.endLine(chunk[:end], yield)
		chunk = chunk[end+1:]
	}
	return p.err
}

// start takes a BOM away at the stream's start, however it is cut up, and
// returns what is to be read. Bytes that only began like a BOM become the
// beginning of the first line.
func (p *Parser) start(chunk []byte) []byte {
	for len(chunk) > 0 && p.bom < len(bom) {
		if chunk[0] != bom[p.bom] {
			p.line = append(p.line, bom[:p.bom]...)
			break
		}
		p.bom++
		chunk = chunk[1:]
	}
	if len(chunk) > 0 {
		p.bom = -1
	}
	return chunk
}

// hold keeps a part of a line until its end arrives, if the line can matter.
func (p *Parser) hold(part []byte) error {
	if p.skip {
		return nil
	}
	// Field names are short: the first bytes tell whether the rest matters.
	const enough = len("retry:")
	if need := min(enough-len(p.line), len(part)); need > 0 {
		p.line = append(p.line, part[:need]...)
		part = part[need:]
		if !hopeful(p.line) {
			p.line, p.skip = p.line[:0], true
			return nil
		}
	}
	if len(part) == 0 {
		return nil // field asks for room when it knows that the name is whole
	}
	if err := p.room(len(p.line) + len(part)); err != nil {
		return err
	}
	p.line = append(p.line, part...)
	return nil
}

// hopeful reports whether a line that begins like this can become a known field.
func hopeful(line []byte) bool {
	name, _, complete := bytes.Cut(line, []byte(":"))
	for _, known := range [...]string{"data", "event", "id", "retry"} {
		if string(name) == known || !complete && len(name) < len(known) && string(name) == known[:len(name)] {
			return true
		}
	}
	return false
}

// room is an error if so many more bytes are too many for the block.
func (p *Parser) room(more int) error {
	limit := p.MaxBlock
	if limit <= 0 {
		limit = DefaultMaxBlock
	}
	if more+len(p.data)+len(p.typ)+len(p.id) > limit {
		return fmt.Errorf("%w: the limit is %d bytes", ErrBlockTooLarge, limit)
	}
	return nil
}

// endLine reads the line that rest completes.
func (p *Parser) endLine(rest []byte, yield func(Event) error) error {
	if p.skip {
		p.skip = false
		return nil
	}
	line := rest
	if len(p.line) > 0 {
		if err := p.hold(rest); err != nil {
			return err
		}
		if p.skip {
			p.skip = false
			return nil
		}
		line = p.line
		p.line = reuse(p.line)
	}
	if len(line) == 0 {
		return p.dispatch(yield)
	}
	return p.field(line)
}

func (p *Parser) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	var set func(value []byte)
	switch string(name) {
	case "data":
		set = p.addData
	case "event":
		set = p.setType
	case "id":
		set = p.setID
	case "retry":
		set = p.setRetry
	default:
		return nil
	}
	if err := p.room(len(line)); err != nil {
		return err
	}
	set(value)
	return nil
}

func (p *Parser) addData(value []byte) { p.data = append(appendUTF8(p.data, value), '\n') }

func (p *Parser) setType(value []byte) { p.typ = appendUTF8(p.typ[:0], value) }

func (p *Parser) setID(value []byte) {
	if bytes.IndexByte(value, 0) < 0 {
		p.id, p.hasID = appendUTF8(p.id[:0], value), true
	}
}

// setRetry takes ASCII digits and nothing else. It counts at once, even if the
// block is never finished.
func (p *Parser) setRetry(value []byte) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	var ms int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return
		}
		ms = min(ms*10+int64(c-'0'), most) // most·10+9 still fits
	}
	if len(value) > 0 {
		p.retry, p.hasRetry = time.Duration(ms)*time.Millisecond, true
	}
}

// dispatch ends the block. Its ID counts even if there is no data.
func (p *Parser) dispatch(yield func(Event) error) error {
	e := Event{HasID: p.hasID, Position: len(p.data) == 0}
	if p.hasID {
		p.lastID = string(p.id)
	}
	e.ID = p.lastID
	if !e.Position {
		e.Type = string(p.typ)
		if e.Type == "" {
			e.Type = "message"
		}
		e.Data = string(p.data[:len(p.data)-1])
	}
	p.id, p.typ, p.data = reuse(p.id), reuse(p.typ), reuse(p.data)
	p.hasID = false
	if e.Position && !e.HasID {
		return nil
	}
	return yield(e)
}

func reuse(buffer []byte) []byte {
	if cap(buffer) > keepBuffer {
		return nil
	}
	return buffer[:0]
}
