package publish

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

var errLineTooLong = errors.New("the line is too long")

// lines reads NDJSON with bounded memory.
type lines struct {
	r    *bufio.Reader
	most func() int // bytes of a line
	buf  []byte
}

// linesBuffer is how much of a batch is taken from its connection at once.
const linesBuffer = 64 << 10

func newLines(r *bufio.Reader, most func() int) *lines {
	return &lines{r: r, most: most}
}

// next is the next line that isn't blank, without its end, valid until the
// next call. It returns errLineTooLong for a line over the limit, which it
// skips whole, and io.EOF after the last line. A line without an end counts
// only if the input ends properly: else it may be half of one.
func (l *lines) next() ([]byte, error) {
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

func (l *lines) read() ([]byte, error) {
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
			return nil, errLineTooLong
		}
		return l.buf, nil
	}
}

// waits reports whether the next call of next may have to wait for the client.
func (l *lines) waits() bool {
	ready, _ := l.r.Peek(l.r.Buffered()) // what is buffered can be peeked at
	return bytes.IndexByte(ready, '\n') < 0
}
