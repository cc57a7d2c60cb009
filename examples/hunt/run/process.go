package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is one that this run has started.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed once it is gone and all that it said was read
	err   error         // why, from then on
	said  tail
}

// start starts a program; each line of its output is handed to read.
func start(name, path string, args []string, read func(line string)) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = &p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program, which ends the others in order
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the %s can't be started: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			read(lines.Text())
		}
		_, _ = io.Copy(io.Discard, out)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// patience is how long a process may take to begin or to end.
const patience = time.Minute

// await waits until something has come true that the process is to bring about.
func (p *process) await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("the %s has ended: %w\n%s", p.name, errors.Join(p.err), p.said.text())
		case <-ctx.Done():
			return fmt.Errorf("the %s: %s: %w\n%s", p.name, what, ctx.Err(), p.said.text())
		}
	}
	return nil
}

// end asks it to end, and makes it.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // if it has gone already, there is nothing to do
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - 64<<10; over > 0 {
		t.kept = bytes.Clone(t.kept[over:])
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.kept)), "\n")
	return strings.Join(lines[max(len(lines)-20, 0):], "\n")
}
