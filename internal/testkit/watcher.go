package testkit

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// A watcher is a shell that waits for its input to end and then kills one
// process, or a group of them. The input ends when this process does, however it
// dies, so no server outlives a test binary that was killed or ran out of time. It has
// a group of its own: what ends all of the tests' group (Ctrl-C, timeout) must not
// end it first.
type watcher struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// watch watches a process or, by its negative number, a group.
func watch(pid int) (*watcher, error) {
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("read -r line; kill -9 %d", pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &watcher{cmd: cmd, stdin: stdin}, nil
}

// dismiss ends the watcher; it kills nothing any more. Call it before the
// watched process is waited for: its ID may soon belong to another one.
func (w *watcher) dismiss() {
	if w.cmd.ProcessState != nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.stdin.Close()
}
