package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process is one run of the program that a test can freeze, kill and end.
// Its methods fail the test instead of returning an error.
type process struct {
	tb      testing.TB
	name    string
	cmd     *exec.Cmd
	watcher *watcher
	group   bool // it leads a group of processes, which end with it
	exited  chan struct{}
	output  *output // standard error
}

// start starts cmd; read reads its output to the end, and may be nil. What leads
// a group (Setpgid) is killed with all of it.
func start(tb testing.TB, name string, cmd *exec.Cmd, read func()) *process {
	tb.Helper()
	p := &process{tb: tb, name: name, cmd: cmd, output: &output{}, exited: make(chan struct{})}
	p.group = cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid
	cmd.Stderr = p.output
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting the %s: %v", name, err)
	}
	var err error
	victim := cmd.Process.Pid
	if p.group {
		victim = -victim
	}
	if p.watcher, err = watch(victim); err != nil {
		_ = cmd.Process.Kill()
		tb.Fatal(err)
	}
	go func() {
		if read != nil {
			read()
		}
		_ = cmd.Wait() // only after all of the output was read
		close(p.exited)
	}()
	return p
}

// Pid is the process's ID.
func (p *process) Pid() int { return p.cmd.Process.Pid }

// Stop freezes the process, and returns when it stands still; Cont lets it go on.
func (p *process) Stop() {
	p.tb.Helper()
	p.signal(syscall.SIGSTOP)
	awaitStill(p.tb, p.cmd.Process.Pid)
}

// Cont lets a frozen process go on.
func (p *process) Cont() { p.signal(syscall.SIGCONT) }

// Hangup asks a gateway to read its files again.
func (p *process) Hangup() { p.signal(syscall.SIGHUP) }

// Kill9 ends the process as a crash would.
func (p *process) Kill9() {
	p.watcher.dismiss()
	if p.group && !p.Exited() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Terminate sends SIGTERM and waits for the end; it returns the exit code.
func (p *process) Terminate() int {
	p.tb.Helper()
	p.Signal(syscall.SIGTERM)
	return p.AwaitExit()
}

// Signal sends a signal that may end the process.
func (p *process) Signal(s os.Signal) {
	p.tb.Helper()
	p.watcher.dismiss()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("sending %v to the %s: %v", s, p.name, err)
	}
}

// AwaitExit waits until the process has ended; it returns the exit code.
func (p *process) AwaitExit() int {
	p.tb.Helper()
	p.watcher.dismiss()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.tb.Fatalf("the %s doesn't end:\n%s", p.name, p.output)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("sending %v to the %s: %v", s, p.name, err)
	}
}

// awaitStill waits until a process that was sent SIGSTOP stands still. The signal
// goes to one of its threads, which on a busy machine gets the processor hundreds
// of milliseconds later: until then the others run on.
func awaitStill(tb testing.TB, pid int) {
	tb.Helper()
	Eventually(tb, "the process stands still", func() bool { return still(pid) })
}

func still(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		return stands(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // its name may hold anything
	}
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || stands(string(state)) // it fails when nothing has the number
}

// stands reports whether what the system says of a process begins with the state
// of one that is stopped, or dead.
func stands(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || strings.Contains("TZX", text[:1])
}

// Exited reports whether the process has ended.
func (p *process) Exited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
