package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// What goes into one request of a batch: few enough to repeat it, enough to be fast.
const (
	partLines = 1000
	partBytes = 4 << 20
)

// sendLines posts NDJSON in parts, each under a key of its own, prints the
// answers, and shows its progress to a person.
func sendLines(ctx context.Context, s *sender, io console) error {
	in := bufio.NewReaderSize(io.in, 64<<10)
	p := newProgress(io.err)
	defer p.end()
	for number := 1; ; number++ {
		part, n, end := readPart(in)
		if n > 0 {
			answer, err := s.publish(ctx, "application/x-ndjson", fmt.Sprintf("%s-%d", s.run, number), part, allAnswered(n))
			if len(answer) > 0 && bytes.HasPrefix(answer, []byte("{")) {
				if _, err := io.out.Write(answer); err != nil {
					return err
				}
			}
			if err != nil {
				return fmt.Errorf("lines %d to %d: %w", p.sent+1, p.sent+n, err)
			}
			p.add(n, bytes.Count(answer, []byte(`{"error":`)))
		}
		switch {
		case errors.Is(end, errEnd):
			return p.result()
		case end != nil:
			return end
		}
	}
}

var (
	errEnd     = errors.New("end of input")
	errTooLong = fmt.Errorf("a line of standard input has more than %d bytes, which no gateway takes as one event", maxInput)
)

// readPart collects lines until a bound, the end, or a pause of the input.
func readPart(in *bufio.Reader) (part []byte, lines int, end error) {
	for lines < partLines && len(part) < partBytes {
		if ready, _ := in.Peek(in.Buffered()); lines > 0 && bytes.IndexByte(ready, '\n') < 0 {
			return part, lines, nil
		}
		before := len(part)
		for {
			piece, err := in.ReadSlice('\n')
			part = append(part, piece...)
			if len(part)-before > maxInput {
				return part[:before], lines, errTooLong
			}
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				if end = errEnd; err != io.EOF {
					end = fmt.Errorf("standard input can't be read: %w", err)
				}
				break
			}
		}
		if len(bytes.TrimSpace(part[before:])) > 0 {
			lines++
		}
		if end != nil {
			return part, lines, end
		}
	}
	return part, lines, nil
}

// allAnswered wants an answer for each of n lines, none of them a failure of
// the log or too fast for it: those are stored by a repetition, and the others
// are replayed.
func allAnswered(n int) func(int, []byte) error {
	stood := 0 // at the last try
	return func(status int, body []byte) error {
		if status != http.StatusOK {
			return refusalOf(status, body)
		}
		answers, fast := 0, 0
		var limited *temporary
		for line := range bytes.Lines(body) {
			var a struct {
				Error *struct {
					Status     int
					RetryAfter int `json:"retry_after"`
				}
			}
			if err := json.Unmarshal(line, &a); err != nil {
				return &temporary{err: errors.New("the answer broke off")}
			}
			if a.Error != nil && a.Error.Status >= http.StatusInternalServerError {
				return &temporary{err: refusalIn(line)}
			}
			if a.Error != nil && a.Error.Status == http.StatusTooManyRequests {
				if fast++; limited == nil {
					limited = &temporary{err: refusalIn(line), wait: time.Duration(min(a.Error.RetryAfter, 60)) * time.Second}
				}
			}
			answers++
		}
		if answers != n {
			return &temporary{err: fmt.Errorf("%d of %d lines were answered", answers, n)}
		}
		if limited != nil {
			limited.onward, stood = answers-fast > stood, max(stood, answers-fast)
			return limited
		}
		return nil
	}
}

func refusalIn(line []byte) error {
	var a struct{ Error json.RawMessage }
	_ = json.Unmarshal(line, &a) // it was read before
	return refusalOf(http.StatusServiceUnavailable, a.Error)
}
