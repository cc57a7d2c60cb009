// Package watch owns what the system says of processes: processor time, memory
// of their own, and the kernel's memory for sockets. It owns no rhythm. Its
// invariant: a process that can't be read is an error, never a zero.
package watch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Target is a named group of processes.
type Target struct {
	Name     string
	PIDs     []int
	Children bool // with all their descendants
}

// A Use is what a group of processes uses at one moment.
type Use struct {
	PIDs []int
	CPU  float64 // seconds so far, in user and kernel mode
	PSS  int64   // bytes: memory of its own, and its share of what is shared
	RSS  int64   // bytes
}

// ErrUnsupported is what all functions return on other systems than Linux.
var ErrUnsupported = errors.New("watching processes needs Linux; leave out --watch here")

// ParseTarget reads NAME=PID, NAME=PID,PID or NAME=PID+, where + adds all
// descendants.
func ParseTarget(text string) (Target, error) {
	wrong := fmt.Errorf("--watch %q isn't of the form NAME=PID, NAME=PID,PID or NAME=PID+", text)
	name, list, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return Target{}, wrong
	}
	t := Target{Name: name}
	list, t.Children = strings.CutSuffix(list, "+")
	for part := range strings.SplitSeq(list, ",") {
		pid, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || pid <= 0 {
			return Target{}, wrong
		}
		t.PIDs = append(t.PIDs, pid)
	}
	slices.Sort(t.PIDs)
	t.PIDs = slices.Compact(t.PIDs)
	return t, nil
}
