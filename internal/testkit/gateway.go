package testkit

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Program is the built binary.
type Program struct {
	root, path string
	bounds     []string // what the shell is told before it runs it; empty: it runs as the tests do
}

// Limited is the program with no more file descriptors than that.
func (p Program) Limited(descriptors int) Program {
	p.bounds = append(slices.Clone(p.bounds), fmt.Sprintf("ulimit -n %d", descriptors))
	return p
}

// SmallFiles is the program with a disk that fails each write beyond that many
// half kilobytes of a file.
func (p Program) SmallFiles(blocks int) Program {
	p.bounds = append(slices.Clone(p.bounds), fmt.Sprintf("ulimit -f %d", blocks))
	return p
}

// Other is another build of the program, such as another version's.
func (p Program) Other(path string) Program {
	p.path = path
	return p
}

// Build builds the program with the race detector into a directory of the
// caller's. It is slow for the first time on a machine; call it from TestMain.
func Build(dir string) (Program, error) { return build(dir, "race", "-race") }

// BuildPlain builds the program as users get it, for benchmarks.
func BuildPlain(dir string) (Program, error) { return build(dir, "plain") }

// build builds where the next test binary finds the work done, and copies from
// there: who builds after a change replaces nothing that a test runs.
func build(dir, kind string, flags ...string) (Program, error) {
	_, file, _, _ := runtime.Caller(0)
	p := Program{root: filepath.Join(filepath.Dir(file), "..", ".."), path: filepath.Join(dir, "downlink")}
	shared := filepath.Join(p.root, "bin", "test", kind)
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return Program{}, err
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Program{}, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return Program{}, fmt.Errorf("waiting for others that build the program: %w", err)
	}
	binary := filepath.Join(shared, "downlink")
	args := append(append([]string{"build"}, flags...), "-o", binary, "./cmd/downlink")
	cmd := exec.Command("go", args...)
	cmd.Dir = p.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return Program{}, fmt.Errorf("building the program: %w\n%s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return Program{}, err
	}
	return p, os.WriteFile(p.path, content, 0o755)
}

// Command is a run of the program, not started. It goes on after a data race,
// which fails the test, and doesn't wait a second before it ends, as programs
// with the race detector do.
func (p Program) Command(args ...string) *exec.Cmd {
	p.touchSources()
	cmd := exec.Command(p.path, args...)
	if len(p.bounds) > 0 {
		script := strings.Join(append(slices.Clone(p.bounds), `exec "$0" "$@"`), " && ")
		cmd = exec.Command("sh", append([]string{"-c", script, p.path}, args...)...)
	}
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0 atexit_sleep_ms=0")
	return cmd
}

// touchSources looks at everything that the program is built from: go test
// notes which files a test looks at, and would else answer from its cache
// after the program was changed. TestMain, where it is built, isn't watched.
func (p Program) touchSources() {
	for _, dir := range []string{"cmd", "internal", "client", "throttle"} {
		_ = filepath.WalkDir(filepath.Join(p.root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err // whatever is wrong with it fails the build
		})
	}
	_, _ = os.Stat(filepath.Join(p.root, "go.mod"))
}

// A Gateway is one running `downlink serve`, dial or governor. Its methods fail the test instead
// of returning an error.
type Gateway struct {
	Device  string // base URL of the devices' port
	Backend string // base URL of the back end's port

	*process
	serves chan struct{} // closed once the URLs are known
}

// StartGateway starts `downlink serve` on free loopback ports, where no load
// balancer has to notice its end, with further arguments, waits until it is ready, and kills it when the test ends. A data
// race that it reports fails the test.
func (p Program) StartGateway(tb testing.TB, args ...string) *Gateway {
	tb.Helper()
	g := p.LaunchGateway(tb, args...)
	g.AwaitReady()
	return g
}

// LaunchGateway is StartGateway without the wait: the URLs are known, and
// methods that use them may be called, after AwaitReady.
func (p Program) LaunchGateway(tb testing.TB, args ...string) *Gateway {
	tb.Helper()
	return p.launch(tb, append([]string{"serve", "--listen", "127.0.0.1:0", "--backend-listen", "127.0.0.1:0", "--drain-wait", "0s"}, args...))
}

// StartDialler starts `downlink dial` with further arguments, as StartGateway
// starts a gateway. It has no devices' port.
func (p Program) StartDialler(tb testing.TB, args ...string) *Gateway {
	tb.Helper()
	g := p.LaunchDialler(tb, args...)
	g.AwaitReady()
	return g
}

// LaunchDialler is StartDialler without the wait.
func (p Program) LaunchDialler(tb testing.TB, args ...string) *Gateway {
	tb.Helper()
	return p.launch(tb, append([]string{"dial", "--backend-listen", "127.0.0.1:0"}, args...))
}

// StartGovernor starts `downlink governor` with further arguments. Backend is where
// it is asked; it has an opinion only 15 s later, when AwaitReady returns.
func (p Program) StartGovernor(tb testing.TB, args ...string) *Gateway {
	tb.Helper()
	g := p.launch(tb, append([]string{"governor", "--governor-listen", "127.0.0.1:0"}, args...))
	g.AwaitStarted()
	return g
}

func (p Program) launch(tb testing.TB, args []string) *Gateway {
	tb.Helper()
	cmd := p.Command(args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	g := &Gateway{serves: make(chan struct{})}
	g.process = start(tb, "gateway", cmd, func() { g.readAddresses(bufio.NewScanner(stdout)) })
	tb.Cleanup(g.finish)
	return g
}

func (g *Gateway) readAddresses(lines *bufio.Scanner) {
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "devices:  "); ok {
			g.Device = url
		}
		url, ok := strings.CutPrefix(lines.Text(), "back end: ")
		if !ok {
			url, ok = strings.CutPrefix(lines.Text(), "governor: ")
		}
		if ok {
			g.Backend = url
			close(g.serves)
		}
	}
}

// Started reports whether the gateway has said where it serves. Until then
// SIGHUP may end it: the process may not have come to its own code yet.
func (g *Gateway) Started() bool {
	select {
	case <-g.serves:
		return true
	default:
		return false
	}
}

// AwaitStarted waits until the gateway says where it serves.
func (g *Gateway) AwaitStarted() {
	g.tb.Helper()
	select {
	case <-g.serves:
	case <-g.exited:
		g.tb.Fatalf("the gateway ended at once:\n%s", g.output)
	case <-time.After(patience):
		g.tb.Fatalf("the gateway didn't say where it serves:\n%s", g.output)
	}
}

// AwaitReady is AwaitStarted, and waits until /readyz says that it is ready.
func (g *Gateway) AwaitReady() {
	g.tb.Helper()
	g.AwaitStarted()
	Eventually(g.tb, "the gateway is ready", func() bool {
		select {
		case <-g.exited:
			g.tb.Fatalf("the gateway ended:\n%s", g.output)
		default:
		}
		status, _ := Get(g.tb, g.Backend+"/readyz")
		return status == 200
	})
}

// Log is what the process has written to standard error.
func (g *Gateway) Log() string { return g.output.String() }

func (g *Gateway) finish() {
	select {
	case <-g.exited:
	default:
		_ = g.cmd.Process.Signal(syscall.SIGCONT)
		g.Kill9()
	}
	log := g.output.String()
	if strings.Contains(log, "DATA RACE") {
		g.tb.Error("the gateway has a data race")
	}
	if g.tb.Failed() {
		g.tb.Logf("log of the gateway at %s %s:\n%s", g.Device, g.Backend, log)
	}
}

// output gathers what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
