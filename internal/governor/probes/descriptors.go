package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"downlink/internal/governor"
)

// DescriptorsName is the name of what is read of this process's file descriptors.
const DescriptorsName = "descriptors"

// Descriptors is how many file descriptors the process has open of those that it
// may have. What the limits let in stays below 95 % of them: more means that
// connections are closed more slowly than they come, or that something else
// takes descriptors.
func Descriptors() governor.Signal {
	s := own(DescriptorsName, func(context.Context) (governor.Reading, error) {
		open, err := openDescriptors()
		if err != nil {
			return governor.Reading{}, err
		}
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return governor.Reading{}, fmt.Errorf("asking for the limit of file descriptors: %w", err)
		}
		return ofDescriptors(open, uint64(limit.Cur)) //nolint:unconvert // it is signed on some systems
	})
	s.Period, s.Fresh = 5*time.Second, 20*time.Second // before Linux 6.2 it reads thousands of names
	s.Unit = "ratio"
	s.Help = "File descriptors that the process has open, as a part of its limit (ulimit -n). At 100 % nobody can connect, and the log can't open files. " +
		"Raise the limit (LimitNOFILE, docs/operate/listeners.md), or lower max_connections."
	s.Threshold, s.Wall, s.Levers = 0.95, 0.98, []string{governor.Admission}
	return s
}

// endless is from where on a limit is none: systems write different numbers.
const endless = 1 << 40

func ofDescriptors(open, limit uint64) (governor.Reading, error) {
	switch {
	case open == 0:
		return governor.Reading{}, errors.New("the system says that the process has no file descriptor open, which can't be")
	case limit == 0:
		return governor.Reading{}, errors.New("the system says that the process may have no file descriptors, which can't be")
	case limit >= endless:
		return governor.Reading{None: fmt.Sprintf("the process may open as many as there are; %d are open", open)}, nil
	}
	return governor.Reading{Value: float64(open) / float64(limit), Detail: fmt.Sprintf("%d of %d", open, limit)}, nil
}

// openDescriptors counts them. Linux tells the number as the size of the
// directory from 6.2 on; elsewhere it has that many names.
func openDescriptors() (uint64, error) {
	for _, name := range []string{"/proc/self/fd", "/dev/fd"} {
		dir, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("counting file descriptors: %w", err)
		}
		defer dir.Close()
		return countIn(dir)
	}
	return 0, errors.New("counting file descriptors: this system has neither /proc/self/fd nor /dev/fd")
}

// namesAtOnce bounds the memory for counting.
const namesAtOnce = 1024

// countIn counts without the descriptor of the directory itself.
func countIn(dir *os.File) (uint64, error) {
	if info, err := dir.Stat(); err == nil && dir.Name() == "/proc/self/fd" && info.Size() > 0 {
		return uint64(info.Size()) - 1, nil
	}
	count := 0
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		count += len(names)
		if errors.Is(err, io.EOF) {
			return uint64(max(count-1, 0)), nil
		}
		if err != nil {
			return 0, fmt.Errorf("counting file descriptors: %w", err)
		}
	}
}
