package testkit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A Result is what a command that has ended left behind.
type Result struct {
	Code     int // exit code
	Out, Err string
}

// Run runs the program to its end, in a directory of its own, with in as its
// standard input.
func (p Program) Run(tb testing.TB, in string, args ...string) Result {
	tb.Helper()
	var out, errs bytes.Buffer
	cmd := p.Command(args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = tb.TempDir(), strings.NewReader(in), &out, &errs
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting %q: %v", args, err)
	}
	hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		tb.Fatalf("running %q: %v", args, err)
	}
	if !hung.Stop() {
		tb.Fatalf("%q didn't end; it wrote:\n%s%s", args, out.String(), errs.String())
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// A Listener is one running `downlink listen`: a device that is a process, so
// that it can be frozen and killed. Its methods fail the test instead of
// returning an error.
type Listener struct{ *process }

// StartListener starts `downlink listen` with further arguments; what it
// prints is added to the file. It is killed when the test ends.
func (p Program) StartListener(tb testing.TB, file string, args ...string) *Listener {
	tb.Helper()
	printed, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer printed.Close() // the process has its own
	cmd := p.Command(append([]string{"listen"}, args...)...)
	cmd.Stdout = printed
	l := &Listener{start(tb, "listener", cmd, nil)}
	tb.Cleanup(func() {
		l.Kill9()
		if tb.Failed() {
			tb.Logf("the listener said:\n%s", l.output)
		}
	})
	return l
}
