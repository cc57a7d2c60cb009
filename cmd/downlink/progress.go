package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress counts, and tells a person twice a second on one line.
type progress struct {
	w             io.Writer // nil where nobody watches
	sent, refused int
	shown         time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{}
	if terminal(w) {
		p.w = w
	}
	return p
}

// terminal reports whether a person watches.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *progress) add(lines, refused int) {
	p.sent += lines
	p.refused += refused
	if p.w != nil && time.Since(p.shown) > 500*time.Millisecond {
		p.shown = time.Now()
		p.show("\r")
	}
}

func (p *progress) show(start string) {
	fmt.Fprintf(p.w, "%s%d sent, %d refused", start, p.sent, p.refused) //nolint:errcheck // nowhere else to complain
}

func (p *progress) end() {
	if p.w != nil && !p.shown.IsZero() {
		p.show("\r")
		fmt.Fprintln(p.w) //nolint:errcheck // nowhere else to complain
	}
}

// result is the error that refused lines mean for the exit code.
func (p *progress) result() error {
	if p.refused == 0 {
		return nil
	}
	return refused(fmt.Errorf("%d of %d lines were refused; the answers that begin with {\"error\" say why", p.refused, p.sent))
}
