package producer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A caller speaks as much HTTP/1.1 as publishing needs, over one connection
// that is kept. net/http would cost the generator more than some servers need
// to answer.
type caller struct {
	link
	host   string
	r      *bufio.Reader
	out    []byte
	answer []byte
}

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 64 << 20

func newCaller(u *url.URL) *caller {
	port := "80"
	if u.Scheme == "https" {
		port = "443"
	}
	return &caller{link: newLink(u, port, u.Scheme == "https"), host: u.Host}
}

// begin starts the head of a POST that is the same each time.
func (c *caller) begin(b []byte, path, contentType string, fields []string) []byte {
	b = append(b, "POST "+path+" HTTP/1.1\r\nHost: "+c.host+"\r\n"...)
	if contentType != "" {
		b = append(b, "Content-Type: "+contentType+"\r\n"...)
	}
	for _, f := range fields {
		b = append(append(b, f...), "\r\n"...)
	}
	return append(b, "Content-Length: "...)
}

// post sends a request; its head ends before the value of Content-Length. sent
// is whether the server may have it. The answer is valid until the next call.
func (c *caller) post(ctx context.Context, head, body []byte) (status int, answer []byte, sent bool, err error) {
	c.out = append(c.out[:0], head...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), body...)
	fresh, err := c.open(ctx)
	if err != nil {
		return 0, nil, false, err
	}
	if fresh {
		c.reset(c.conn)
	}
	// A request that is under way gets its answer although the run ends.
	_ = c.conn.SetDeadline(time.Now().Add(requestTimeout)) // a failed one shows in the next call
	if _, err = c.conn.Write(c.out); err == nil {
		status, err = c.readAnswer()
	}
	if err != nil {
		c.drop()
		return 0, nil, true, fmt.Errorf("publishing to %s: %w", c.address, err)
	}
	return status, c.answer, true, nil
}

// reset begins to read answers from another connection.
func (c *caller) reset(r io.Reader) { c.r = bufio.NewReaderSize(r, 16<<10) }

// readAnswer reads one response, and closes the connection if it says so.
func (c *caller) readAnswer() (status int, err error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return 0, fmt.Errorf("the answer is not HTTP/1.1: it begins with %q", line[:min(len(line), 40)])
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil || status < 100 {
		return 0, fmt.Errorf("the answer's status is %q", line[9:12])
	}
	length, last := int64(-1), false
	for {
		if line, err = c.line(); err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(value), 10, 64); err != nil || length < 0 || length > maxAnswer {
				return 0, fmt.Errorf("the answer's Content-Length is %q", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = chunkedLength
		case bytes.EqualFold(name, []byte("Connection")):
			last = bytes.EqualFold(value, []byte("close"))
		}
	}
	if status < 200 {
		return c.readAnswer() // this one was interim
	}
	if err = c.readBody(length, status); err == nil && last {
		c.drop()
	}
	return status, err
}

const chunkedLength = -2

func (c *caller) readBody(length int64, status int) error {
	c.answer = c.answer[:0]
	switch {
	case status == 204 || status == 304:
		return nil
	case length >= 0:
		return c.take(length)
	case length != chunkedLength:
		return fmt.Errorf("the answer %d has no length", status)
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		digits, _, _ := strings.Cut(string(line), ";")
		size, err := strconv.ParseInt(strings.TrimSpace(digits), 16, 64)
		if err != nil || size < 0 || size > maxAnswer {
			return fmt.Errorf("the answer has a chunk of size %q", digits)
		}
		if size > 0 {
			if err = c.take(size); err != nil {
				return err
			}
			if _, err = c.line(); err != nil {
				return err
			}
			continue
		}
		for len(line) > 0 { // the trailer
			if line, err = c.line(); err != nil {
				return err
			}
		}
		return nil
	}
}

// take adds n bytes to the answer.
func (c *caller) take(n int64) error {
	start := len(c.answer)
	if int64(start)+n > maxAnswer {
		return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	c.answer = append(c.answer, make([]byte, n)...)
	if _, err := io.ReadFull(c.r, c.answer[start:]); err != nil {
		return errNotAnswered
	}
	return nil
}

// line is the next line without its end, valid until the next read.
func (c *caller) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errNotAnswered
		}
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// Close ends the connection.
func (c *caller) Close() { c.drop() }
