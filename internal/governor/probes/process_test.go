package probes

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"downlink/internal/server"
)

// TestHeap: the runtime's own limit, and what a collection leaves.
func TestHeap(t *testing.T) {
	before := debug.SetMemoryLimit(1 << 30)
	defer debug.SetMemoryLimit(before)
	none := groupFiles{proc: t.TempDir(), root: t.TempDir()}
	s := memoryOf(none, readHeap)
	runtime.GC()
	empty := within(t, s, 0.001, 0.2)
	held := make([]byte, 300<<20)
	for i := range held {
		held[i] = 1
	}
	runtime.GC()
	full := within(t, s, 0.29, 0.5)
	if full.Of != "GOMEMLIMIT" || !strings.HasSuffix(full.Detail, "without garbage, of 1024 MiB") {
		t.Errorf("%+v", full)
	}
	runtime.KeepAlive(held)
	held = nil
	runtime.GC()
	if gone := within(t, s, 0.001, 0.25); gone.Value > empty.Value+0.05 {
		t.Errorf("300 MiB are garbage, and it is %v after %v", gone.Value, empty.Value)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got, err := read(s); err != nil || !strings.Contains(got.None, "no memory limit") {
		t.Errorf("without a limit: %+v, %v", got, err)
	}
}

// TestThisProcess: whatever this machine has, it is an answer.
func TestThisProcess(t *testing.T) {
	if got, err := read(ProcessMemory()); err != nil || got.None == "" && (got.Value <= 0 || got.Value > 1) {
		t.Errorf("%+v, %v", got, err)
	}
}

// write makes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestControlGroups: as kernels write them, and as none would.
func TestControlGroups(t *testing.T) {
	const stat = "anon 5\ninactive_file 100\nactive_file 7\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  groupUse
		err   string
	}{
		"no control groups": {},
		"version 2, in a container": {files: map[string]string{
			"self/cgroup": "0::/\n", "fs/memory.max": "1000\n", "fs/memory.current": "600\n", "fs/memory.stat": stat,
		}, want: groupUse{500, 1000}},
		"the group above is narrower": {files: map[string]string{
			"self/cgroup": "0::/pod/gateway\n", "fs/pod/gateway/memory.max": "max\n", "fs/pod/memory.max": "2000\n",
			"fs/pod/memory.current": "1900\n", "fs/pod/memory.stat": stat,
		}, want: groupUse{1800, 2000}},
		"both have one": {files: map[string]string{
			"self/cgroup":               "0::/pod/gateway\n",
			"fs/pod/gateway/memory.max": "1000\n", "fs/pod/gateway/memory.current": "950\n", "fs/pod/gateway/memory.stat": stat,
			"fs/pod/memory.max": "2000\n", "fs/pod/memory.current": "1000\n", "fs/pod/memory.stat": stat,
		}, want: groupUse{850, 1000}},
		"no limit": {files: map[string]string{"self/cgroup": "0::/a\n", "fs/a/memory.max": "max\n"}},
		"version 1": {files: map[string]string{
			"self/cgroup": "12:cpu,cpuacct:/x\n5:memory:/docker/abc\n0::/\n", "fs/memory/docker/abc/memory.limit_in_bytes": "1000\n",
			"fs/memory/docker/abc/memory.usage_in_bytes": "300\n", "fs/memory/docker/abc/memory.stat": "total_inactive_file 100\n",
		}, want: groupUse{200, 1000}},
		"version 1 without a limit": {files: map[string]string{
			"self/cgroup": "5:memory:/\n", "fs/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}},
		"files that were just read": {files: map[string]string{
			"self/cgroup": "0::/\n", "fs/memory.max": "1000\n", "fs/memory.current": "60\n", "fs/memory.stat": stat,
		}, want: groupUse{0, 1000}},
		"not a number":    {files: map[string]string{"self/cgroup": "0::/\n", "fs/memory.max": "lots\n"}, err: `memory.max says "lots"`},
		"a limit of 0":    {files: map[string]string{"self/cgroup": "0::/\n", "fs/memory.max": "0\n"}, err: "nothing could run"},
		"negative":        {files: map[string]string{"self/cgroup": "0::/\n", "fs/memory.max": "-5\n"}, err: `"-5"`},
		"no use":          {files: map[string]string{"self/cgroup": "0::/\n", "fs/memory.max": "1000\n"}, err: "memory.current"},
		"a use of 0":      {files: map[string]string{"self/cgroup": "0::/\n", "fs/memory.max": "9\n", "fs/memory.current": "0", "fs/memory.stat": stat}, err: "memory.current says 0"},
		"no such line":    {files: map[string]string{"self/cgroup": "0::/\n", "fs/memory.max": "9\n", "fs/memory.current": "5", "fs/memory.stat": "anon 3\n"}, err: "has no inactive_file"},
		"no table at all": {files: map[string]string{"self/cgroup": "what\n"}, err: `says "what"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			got, err := groupFiles{proc: filepath.Join(dir, "self"), root: filepath.Join(dir, "fs")}.read()
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || err == nil && got != c.want {
				t.Errorf("%+v, %v; want %+v, %q", got, err, c.want, c.err)
			}
		})
	}
}

// FuzzControlGroup: whatever the files say, there is a use with a limit, none, or
// an error.
func FuzzControlGroup(f *testing.F) {
	f.Add("0::/\n", "1000\n", "600\n", "inactive_file 100\n")
	f.Add("0::/../..\n", "max", "", "")
	f.Add("5:memory:/\n", "-1", "nan", "inactive_file x")
	f.Fuzz(func(t *testing.T, groups, limit, used, stat string) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"self/cgroup": groups, "fs/memory.max": limit, "fs/memory.current": used, "fs/memory.stat": stat})
		u, err := groupFiles{proc: filepath.Join(dir, "self"), root: filepath.Join(dir, "fs")}.read()
		if u.limit == 0 && u.used != 0 || err != nil && u != (groupUse{}) {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

// TestNearestLimit: the one of which more is used; what failed makes it a lower
// bound, and nothing at all an error.
func TestNearestLimit(t *testing.T) {
	failed := errors.New("it can't be read")
	for _, c := range []struct {
		heap    heapUse
		group   groupUse
		err     error
		value   float64
		of      string
		partial bool
		none    bool
		fails   bool
	}{
		{heap: heapUse{50, 100}, group: groupUse{30, 100}, value: 0.5, of: "GOMEMLIMIT"},
		{heap: heapUse{50, 100}, group: groupUse{80, 100}, value: 0.8, of: "control group"},
		{heap: heapUse{50, 0}, group: groupUse{0, 100}, value: 0, of: "control group"},
		{heap: heapUse{50, 100}, err: failed, value: 0.5, of: "GOMEMLIMIT", partial: true},
		{heap: heapUse{50, 0}, none: true},
		{heap: heapUse{50, 0}, err: failed, fails: true},
	} {
		r, err := nearest(c.heap, c.group, c.err)
		if (err != nil) != c.fails || (r.None != "") != c.none || (r.Partial != "") != c.partial || r.Value != c.value || r.Of != c.of {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
}

// TestDescriptors: of this process, as it opens some more.
func TestDescriptors(t *testing.T) {
	s := Descriptors()
	before := within(t, s, 0.000001, 0.9)
	if before.None != "" {
		t.Skip("this system has no limit: " + before.None)
	}
	open, err := openDescriptors()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
	}
	now, err := openDescriptors()
	if err != nil || now < open+95 || now > open+120 { // other tests open some, too
		t.Errorf("%d, %v; before 100 were opened it was %d", now, err, open)
	}
	if after := within(t, s, 0.000001, 0.95); after.Value <= before.Value {
		t.Errorf("%v after %v", after, before)
	}
	// A system that tells no size has that many names.
	dir, err := os.Open("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if counted, err := countIn(dir); err != nil || counted < open+95 || counted > open+120 {
		t.Errorf("counted %d, %v", counted, err)
	}
}

func TestDescriptorsThroughLies(t *testing.T) {
	for _, c := range []struct{ open, limit uint64 }{{0, 100}, {5, 0}} {
		if r, err := ofDescriptors(c.open, c.limit); err == nil {
			t.Errorf("%+v: %+v", c, r)
		}
	}
	if r, err := ofDescriptors(5, math.MaxInt64); err != nil || r.None == "" {
		t.Errorf("without a limit: %+v, %v", r, err)
	}
}

type sessions struct {
	bytes   int64
	devices int
}

func (s sessions) Pending() (int64, int) { return s.bytes, s.devices }

func TestPending(t *testing.T) {
	if got := within(t, PendingBytes(sessions{20 << 20, 3}), 20<<20, 20<<20); got.Detail != "20 MiB for 3 sessions" {
		t.Errorf("%+v", got)
	}
	within(t, PendingBytes(sessions{}), 0, 0)
	wantError(t, PendingBytes(sessions{-1, 1}), "counted wrongly")
}

// queue is a listener's, as it is told.
type queue struct {
	b   server.Backlog
	err error
}

func (q queue) Backlog() (server.Backlog, error) { return q.b, q.err }

func TestQueue(t *testing.T) {
	if got := within(t, AcceptQueue(queue{b: server.Backlog{Waiting: 3, Most: 4}}), 0.75, 0.75); !strings.HasPrefix(got.Detail, "3 of 4") {
		t.Errorf("%+v", got)
	}
	within(t, AcceptQueue(queue{b: server.Backlog{Waiting: 5, Most: 4}}), 1.25, 1.25)
	wantError(t, AcceptQueue(queue{b: server.Backlog{Waiting: 5}}), "can't be")
	wantError(t, AcceptQueue(queue{err: errors.New("it is closed")}), "it is closed")
	if got, err := read(AcceptQueue(queue{err: server.ErrNoBacklog})); err != nil || got.None == "" {
		t.Errorf("where the system doesn't tell: %+v, %v", got, err)
	}
}

func TestListenOverflows(t *testing.T) {
	const table = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 42 43\nIpExt: InNoRoutes\nIpExt: 7\n"
	if n, ok := listenOverflows(table); n != 42 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	for _, text := range []string{"", "TcpExt: ListenOverflows\n", "TcpExt: A\nTcpExt: 1\n", "TcpExt: A ListenOverflows\nTcpExt: 1\n", "TcpExt: ListenOverflows\nTcpExt: -1\n"} {
		if n, ok := listenOverflows(text); ok {
			t.Errorf("%q: %d", text, n)
		}
	}
	name := filepath.Join(t.TempDir(), "netstat")
	var d dropCount
	for i, c := range []struct {
		count string
		want  bool
	}{{"5", false}, {"5", false}, {"9", true}, {"2", false}, {"3", true}, {"x", false}, {"9", false}} {
		if err := os.WriteFile(name, []byte("TcpExt: ListenOverflows\nTcpExt: "+c.count+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if said := d.since(name); (said != "") != c.want {
			t.Errorf("reading %d of %s: %q", i, c.count, said)
		}
	}
	if said := d.since(name + "-of-another-system"); said != "" {
		t.Error(said)
	}
}
