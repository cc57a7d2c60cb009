package intake

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLineTooLong is what Next says in the place of a line over the limit.
var ErrLineTooLong = errors.New("the line is too long")

// Lines reads NDJSON with bounded memory. Not safe for concurrent use.
type Lines struct {
	r    *bufio.Reader
	most func() int // bytes of a line
	buf  []byte
}

// LinesBuffer is how much of a batch is taken from its connection at once.
const LinesBuffer = 64 << 10

// NewLines reads from r; a line may have most bytes, asked for each.
func NewLines(r *bufio.Reader, most func() int) *Lines {
	return &Lines{r: r, most: most}
}

// Next is the next line that isn't blank, without its end, valid until the
// next call. It returns ErrLineTooLong for a line over the limit, which it
// skips whole, and io.EOF after the last line. A line without an end counts
// only if the input ends properly: else it may be half of one.
func (l *Lines) Next() ([]byte, error) {
	for {
		line, err := l.read()
		if err != nil {
			return nil, err
		}
		if line = bytes.Trim(line, " \t\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

func (l *Lines) read() ([]byte, error) {
	l.buf = l.buf[:0]
	tooLong := false
	for {
		part, err := l.r.ReadSlice('\n')
		if tooLong = tooLong || len(l.buf)+len(part) > l.most(); !tooLong {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil, err == io.EOF && len(part)+len(l.buf) > 0:
		case err == io.EOF && !tooLong:
			return nil, io.EOF
		case err != io.EOF:
			return nil, err
		}
		if tooLong {
			l.buf = nil // a giant leaves no giant buffer behind
			return nil, ErrLineTooLong
		}
		return l.buf, nil
	}
}

// Waits reports whether the next call of Next may have to wait for the client.
func (l *Lines) Waits() bool {
	ready, _ := l.r.Peek(l.r.Buffered()) // what is buffered can be peeked at
	return bytes.IndexByte(ready, '\n') < 0
}
