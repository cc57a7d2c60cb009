package watch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ticks is the unit of processor time in /proc; the kernel's interface has had
// it at 100 a second on every architecture that Go runs on.
const ticks = 100

// Read is what a target uses now. memory false leaves PSS and RSS at 0: they
// cost the target a walk over its pages.
func Read(t Target, memory bool) (Use, error) {
	pids := t.PIDs
	if t.Children {
		pids = withDescendants(pids)
	}
	u := Use{PIDs: pids}
	for _, pid := range pids {
		err := u.add(pid, memory)
		if err != nil && slices.Contains(t.PIDs, pid) {
			return Use{}, fmt.Errorf("watching %s (process %d): %w", t.Name, pid, err)
		}
	}
	return u, nil
}

func (u *Use) add(pid int, memory bool) error {
	stat, err := readStat(pid)
	if err != nil {
		return err
	}
	u.CPU += stat.cpu
	if !memory {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch name {
		case "Pss":
			u.PSS += kilobytes << 10
		case "Rss":
			u.RSS += kilobytes << 10
		}
	}
	return lines.Err()
}

type stat struct {
	parent int
	cpu    float64
}

// readStat reads /proc/PID/stat; proc(5) numbers its fields from 1, and the
// second, in brackets, may hold anything.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the first is field 3
	if len(fields) < 13 {
		return stat{}, errors.New("its stat file can't be read")
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	return stat{parent, float64(user+system) / ticks}, errors.Join(err1, err2)
}

// withDescendants adds the children of pids, and theirs.
func withDescendants(pids []int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc") // without it, the processes themselves fail with a sentence
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	all := slices.Clone(pids)
	for i := 0; i < len(all); i++ {
		for _, child := range children[all[i]] {
			if !slices.Contains(all, child) {
				all = append(all, child)
			}
		}
	}
	return all
}

// Slab is what the kernel of this machine holds in small objects, in bytes:
// sockets themselves are among them, without what is queued in them.
func Slab() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Slab:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo says nothing of slabs")
}

// TCPMemory is what the kernel holds in the queues of all TCP sockets of this
// machine, of both ends where both are here, in bytes.
func TCPMemory() (int64, error) {
	text, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "TCP:" {
			continue
		}
		for i := 1; i+1 < len(fields); i += 2 {
			if fields[i] == "mem" {
				pages, err := strconv.ParseInt(fields[i+1], 10, 64)
				return pages * int64(os.Getpagesize()), err
			}
		}
	}
	return 0, errors.New("/proc/net/sockstat says nothing of TCP's memory")
}
