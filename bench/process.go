package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Times that a server may take to come up, and to go after SIGTERM.
const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// A lab is where one contender runs for one round: a directory and processes.
// Close it on every path; that ends what it started. Not for concurrent use.
type lab struct {
	ctx     context.Context
	dir     string
	procs   []*process
	closers []func() // of what runs inside this process, in order of starting
}

// A process is a server that the lab started.
type process struct {
	name   string
	pid    int
	log    string        // path of what it printed
	exited chan struct{} // closed when it has ended and was reaped
}

func newLab(ctx context.Context) (*lab, error) {
	// Short, because a socket's path has 108 bytes at most; and open to the
	// servers that change their user.
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	return &lab{ctx: ctx, dir: dir}, os.Chmod(dir, 0o755)
}

// start runs a server until the lab is closed. Its output goes to a file.
func (l *lab) start(name, binary string, args ...string) (*process, error) {
	return l.startIn(nil, name, binary, args...)
}

// startIn is start with more environment variables.
func (l *lab) startIn(env []string, name, binary string, args ...string) (*process, error) {
	p := &process{name: name, log: l.path(name + ".log"), exited: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.dir, out, out
	cmd.Env = append(cleanEnvironment(), env...)
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	l.procs = append(l.procs, p)
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // how it ended is seen by who waits for it to be ready
	}()
	return p, nil
}

// cleanEnvironment is ours without what would configure a gateway behind the
// table's back.
func cleanEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DOWNLINK_") && !strings.HasPrefix(kv, "CENTRIFUGO_") {
			env = append(env, kv)
		}
	}
	return env
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name, content string) (string, error) {
	return l.path(name), os.WriteFile(l.path(name), []byte(content), 0o644)
}

// end stops everything, newest first, and removes the directory. It reports
// what had to be killed.
func (l *lab) end() error {
	var errs []error
	for _, p := range slices.Backward(l.procs) {
		errs = append(errs, p.stop())
	}
	for _, shut := range slices.Backward(l.closers) {
		shut()
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// stop ends a process and its descendants, which some servers put into groups
// of their own.
func (p *process) stop() error {
	family := descendants(p.pid)
	_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may have ended already
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	var late error
	select {
	case <-p.exited:
	case <-timer.C:
		late = fmt.Errorf("%s didn't end within %v of SIGTERM and was killed", p.name, stopLimit)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.exited
	}
	for _, d := range family {
		if d.alive() {
			_ = syscall.Kill(d.pid, syscall.SIGKILL)
		}
	}
	return late
}

// ready polls until ask succeeds, p ends, or the time is over.
func (l *lab) ready(p *process, ask func() error) error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-p.exited:
			return fmt.Errorf("%s ended while starting; it printed:\n%s", p.name, tailOf(p.log))
		case <-limit.C:
			return fmt.Errorf("%s isn't ready after %v (%w); it printed:\n%s", p.name, startLimit, err, tailOf(p.log))
		case <-tick.C:
		}
	}
}

// tailOf is the end of a log, for an error text.
func tailOf(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-2000):])
}

func dials(addr string) func() error {
	return func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func answers(url string) func() error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	}
}

// freeAddr is a loopback address that nobody listens on at the moment.
func freeAddr() (string, error) {
	for tries := 0; ; tries++ {
		// Below those that systems give away: nobody takes it by accident meanwhile.
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(30_000+rand.IntN(2_000)))) //nolint:gosec // no secret
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		if tries == 100 {
			return "", err
		}
	}
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err) // only addresses of freeAddr come here
	}
	return port
}

// A relative is a process, told apart from a later one with its ID by the time
// of its start.
type relative struct {
	pid     int
	started string
}

// descendants lists the living processes that stem from pid.
func descendants(pid int) []relative {
	children := map[int][]relative{}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil // not Linux: nothing is measured there
	}
	for _, d := range dirs {
		id, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if parent, started, ok := statOf(id); ok {
			children[parent] = append(children[parent], relative{id, started})
		}
	}
	var found []relative
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, c := range children[next[0]] {
			found = append(found, c)
			next = append(next, c.pid)
		}
	}
	return found
}

func (r relative) alive() bool {
	_, started, ok := statOf(r.pid)
	return ok && started == r.started
}

// statOf reads a process's parent and time of start (proc(5), fields 4 and
// 22); ok is false for one that is gone or only waits to be reaped.
func statOf(pid int) (parent int, started string, ok bool) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, "", false
	}
	// The name, field 2, may hold anything, a bracket too.
	_, rest, _ := strings.Cut(string(content[strings.LastIndexByte(string(content), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, "", false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[19], err == nil
}

// tails is what the lab's servers printed last, for an error text.
func (l *lab) tails() string {
	var b strings.Builder
	for _, p := range l.procs {
		if tail := tailOf(p.log); tail != "" {
			fmt.Fprintf(&b, "%s printed:\n%s\n", p.name, tail)
		}
	}
	return b.String()
}
