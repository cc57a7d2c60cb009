package intake

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzLines: the lines are those of the input, however it is cut into reads; a
// line over the limit ("!") doesn't hide its neighbours.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n \nccccccccccccccccccccc\nd"), uint8(3))
	f.Fuzz(func(t *testing.T, input []byte, most uint8) {
		limit := 1 + int(most)
		var want []string
		for line := range bytes.SplitAfterSeq(input, []byte("\n")) {
			trimmed := bytes.Trim(line, " \t\r\n")
			switch {
			case len(line) > limit:
				want = append(want, "!")
			case len(trimmed) > 0:
				want = append(want, string(trimmed))
			}
		}
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(input), "byte by byte": iotest.OneByteReader(bytes.NewReader(input))} {
			if got := collect(NewLines(bufio.NewReader(r), func() int { return limit })); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

func collect(l *Lines) []string {
	var out []string
	for {
		line, err := l.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out
		case errors.Is(err, ErrLineTooLong):
			out = append(out, "!")
		default:
			out = append(out, string(line))
		}
	}
}
