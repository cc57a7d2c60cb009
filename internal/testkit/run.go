package testkit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
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
type Listener struct {
	tb      testing.TB
	cmd     *exec.Cmd
	watcher *watcher
	exited  chan struct{}
	output  *output
}

// StartListener starts `downlink listen` with further arguments; what it
// prints is added to the file. It is killed when the test ends.
func (p Program) StartListener(tb testing.TB, file string, args ...string) *Listener {
	tb.Helper()
	l := &Listener{tb: tb, output: &output{}, exited: make(chan struct{}), cmd: p.Command(append([]string{"listen"}, args...)...)}
	printed, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer printed.Close() // the process has its own
	l.cmd.Stdout, l.cmd.Stderr = printed, l.output
	if err := l.cmd.Start(); err != nil {
		tb.Fatalf("starting the listener: %v", err)
	}
	if l.watcher, err = watch(l.cmd.Process.Pid); err != nil {
		_ = l.cmd.Process.Kill()
		tb.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait()
		close(l.exited)
	}()
	tb.Cleanup(func() {
		l.Kill9()
		if tb.Failed() {
			tb.Logf("the listener said:\n%s", l.output)
		}
	})
	return l
}

// Stop freezes the process; Cont lets it go on.
func (l *Listener) Stop() { l.signal(syscall.SIGSTOP) }

// Cont lets a frozen process go on.
func (l *Listener) Cont() { l.signal(syscall.SIGCONT) }

// Kill9 ends the process as a crash would.
func (l *Listener) Kill9() {
	l.watcher.dismiss()
	_ = l.cmd.Process.Kill()
	<-l.exited
}

// Terminate sends SIGTERM and returns the exit code.
func (l *Listener) Terminate() int {
	l.tb.Helper()
	l.watcher.dismiss()
	l.signal(syscall.SIGTERM)
	select {
	case <-l.exited:
	case <-time.After(patience):
		l.tb.Fatalf("the listener doesn't end:\n%s", l.output)
	}
	return l.cmd.ProcessState.ExitCode()
}

func (l *Listener) signal(s syscall.Signal) {
	l.tb.Helper()
	if err := l.cmd.Process.Signal(s); err != nil {
		l.tb.Fatalf("sending %v to the listener: %v", s, err)
	}
}
