package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	defaultRounds = 3
	// loadLimit bounds one run of the generator, whatever a table asks of it.
	loadLimit = 20 * time.Minute
	// breather lets the kernel finish with thousands of closed sockets.
	breather = 3 * time.Second
)

// A session measures tables, one run at a time.
type session struct {
	scale  scale
	rounds int            // 0: the table's own
	only   *regexp.Regexp // names of entries
	trial  bool           // results are not for the page
	site   site
	stderr io.Writer
}

// prepare builds what is measured and raises the limit of descriptors.
func (s *session) prepare(ctx context.Context, binary, generator string, extra []string) error {
	// Set explicitly, the limit is inherited by the servers too.
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raising the limit of descriptors to %d: %w", limit.Max, err)
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	if binary == "" {
		binary = filepath.Join(bin, "bench", "downlink")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/downlink")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = s.stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building downlink: %w", err)
		}
	}
	if generator == "" {
		generator = binary
	}
	s.site = site{gateway: binary, generator: generator, extra: extra, bin: bin}
	return nil
}

func (s *session) measureAll(ctx context.Context, names []string) error {
	all := tables(s.scale, s.site)
	var chosen []table
	for _, name := range names {
		i := slices.IndexFunc(all, func(t table) bool { return t.name == name })
		switch {
		case name == "all":
			chosen = all
		case i < 0:
			return fmt.Errorf("no table %q; see `go run ./bench list`", name)
		default:
			chosen = append(chosen, all[i])
		}
	}
	for _, t := range chosen {
		if err := s.measure(ctx, t); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	return nil
}

// measure runs every entry of a table once a round and writes the result.
func (s *session) measure(ctx context.Context, t table) error {
	rounds := s.rounds
	if rounds == 0 {
		rounds = max(t.rounds, defaultRounds)
	}
	r, err := newResult(ctx, t, s.site)
	if err != nil {
		return err
	}
	path := filepath.Join("bench", "results", t.name+".json")
	if s.trial {
		path = filepath.Join("bin", "bench", "quick", t.name+".json")
	}
	if err := s.play(ctx, t, r, rounds); err != nil {
		// What there is may still tell something; it is no result.
		return errors.Join(err, r.save(filepath.Join("bin", "bench", "unfinished", t.name+".json")))
	}
	if err := r.save(path); err != nil {
		return err
	}
	s.say("written to %s\n", path)
	return writeTable(s.stderr, t, r)
}

// play runs the entries by turns, and collects what they give.
func (s *session) play(ctx context.Context, t table, r *result, rounds int) error {
	for round := range rounds {
		for _, e := range t.entries {
			if !s.only.MatchString(e.name) {
				continue
			}
			s.say("%s  %s, round %d of %d: %s\n", time.Now().Format("15:04:05"), t.name, round+1, rounds, e.name)
			v, err := s.attempt(ctx, e)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", e.name, round+1, err)
			}
			r.Runs = append(r.Runs, record{Entry: e.name, Round: round + 1, Values: v})
			s.say("          %s\n", t.summary(v))
			if err := pause(ctx, breather); err != nil {
				return err
			}
		}
	}
	return nil
}

// attempts is how often a peer's run is tried: one that doesn't come up, or
// falls over, must not spoil hours of others. Ours has to do it at once.
const attempts = 3

func (s *session) attempt(ctx context.Context, e member) (values, error) {
	for failed := 0.0; ; failed++ {
		v, err := s.once(ctx, e.entry)
		if err == nil {
			v["failed_attempts"] = failed
			return v, nil
		}
		if e.ours() || failed+1 == attempts || ctx.Err() != nil {
			return nil, err
		}
		s.say("          failed and is repeated: %v\n", err)
	}
}

// once starts an entry's contender afresh, puts the load on it, and ends it.
func (s *session) once(ctx context.Context, e entry) (v values, err error) {
	l, err := newLab(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	v = values{"machine.load1": loadAverage()}
	fsync, err := fsyncTimes(l.dir)
	if err != nil {
		return nil, err
	}
	v.add(fsync)
	t, err := e.start(l)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() (values, error){
		t.before,
		func() (values, error) { return s.load(ctx, l, e, t) },
		t.after,
	} {
		if step == nil {
			continue
		}
		more, err := step()
		if err != nil {
			return nil, err
		}
		v.add(more)
	}
	return v, nil
}

// load runs the generator and reads its report.
func (s *session) load(ctx context.Context, l *lab, e entry, t *target) (values, error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	report := l.path("load.json")
	args := slices.Concat([]string{"load"}, e.load, t.args, t.watching(), []string{"--quiet", "--json", report})
	cmd := exec.CommandContext(ctx, s.site.generator, args...)
	cmd.SysProcAttr = attributes()
	cmd.Env = cleanEnvironment()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // SIGINT is ignored below a job in the background
	cmd.WaitDelay = stopLimit
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	began := time.Now()
	runErr := cmd.Run()
	seconds := time.Since(began).Seconds()
	if ctx.Err() != nil { // interrupted, it reports what there was until then
		return nil, ctx.Err()
	}
	v, err := readReport(report, runErr)
	if err != nil {
		return nil, fmt.Errorf("downlink %s: %w\n%s%s", quoted(args), err, printed.Bytes(), l.tails())
	}
	v["load.seconds"] = seconds
	for _, p := range l.procs {
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended under the load; it printed:\n%s", p.name, tailOf(p.log))
		default:
		}
	}
	return v, nil
}

// say tells who watches how far it is.
func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stderr, format, args...) // nobody watches then
}

// belowThreshold is the generator's exit code for a run that went to its end
// but wasn't perfect, such as with a connection that failed.
const belowThreshold = 4

// readReport reads what the generator found. One device in a hundred may have
// failed to connect: the table shows how many.
func readReport(path string, runErr error) (values, error) {
	var exit *exec.ExitError
	if runErr != nil && !(errors.As(runErr, &exit) && exit.ExitCode() == belowThreshold) {
		return nil, runErr
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Join(runErr, err)
	}
	v, err := flatten(content)
	if err == nil && v["connect.connected"] < 0.99*v["connect.asked"] {
		err = fmt.Errorf("%v of %v devices connected", v["connect.connected"], v["connect.asked"])
	}
	return v, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// fsyncTimes measures what the disk below dir takes to store 4 KiB for good.
func fsyncTimes(dir string) (v values, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4<<10)
	times := make([]float64, 0, 100)
	for range cap(times) {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds()*1000)
	}
	slices.Sort(times)
	return values{"disk.fsync_ms.p50": times[len(times)/2], "disk.fsync_ms.p99": times[len(times)*99/100]}, nil
}

func loadAverage() float64 {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil || runtime.GOOS != "linux" {
		return 0
	}
	first, _, _ := strings.Cut(string(content), " ")
	n, _ := strconv.ParseFloat(first, 64) // 0 says that it isn't known
	return n
}

// quoted is a command line that can be pasted into a shell.
func quoted(args []string) string {
	all := make([]string, 0, len(args))
	for _, arg := range args {
		if strings.ContainsAny(arg, " {}\"'()\\?&*$;|<>") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		all = append(all, arg)
	}
	return strings.Join(all, " ")
}
