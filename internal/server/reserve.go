package server

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"downlink/internal/lobby"
)

// A reserve is a few descriptors that a listener holds for the moment at which
// the process has no other: with them it can still accept, so as to answer
// health and to say "no". Safe for concurrent use.
type reserve struct {
	// Set at construction.
	size  int
	meter *lobby.Meter
	log   *slog.Logger
	gone  chan struct{} // closed by close

	// Guarded by mu.
	mu     sync.Mutex
	files  []*os.File
	tried  time.Time // when it was last filled up
	warned time.Time
	closed bool
}

func newReserve(size int, meter *lobby.Meter, log *slog.Logger) *reserve {
	r := &reserve{size: size, meter: meter, log: log, gone: make(chan struct{})}
	r.fillLocked()
	return r
}

// outOfDescriptors: the process's limit, or the system's.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// lend gives one descriptor up; false if there is none left.
func (r *reserve) lend() bool {
	r.meter.Short.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); !r.closed && now.Sub(r.warned) > warnEvery {
		r.warned = now
		r.log.Warn("the process has no file descriptor left; new streams are refused until some are free, those that are open stay: raise the limit (ulimit -n), or see what else uses them")
	}
	last := len(r.files) - 1
	if last < 0 {
		return false
	}
	r.files[last].Close()
	r.files = r.files[:last]
	return true
}

// warnEvery is how often a shortage is logged at most.
const warnEvery = time.Minute

// fillEvery is how often filling up is tried at most.
const fillEvery = 50 * time.Millisecond

// short reports whether what was lent isn't back yet, having tried to take it
// back.
func (r *reserve) short() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) < r.size && !r.closed && time.Since(r.tried) > fillEvery {
		r.fillLocked()
	}
	return len(r.files) < r.size
}

func (r *reserve) fillLocked() {
	r.tried = time.Now()
	for len(r.files) < r.size {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // tried again soon
		}
		r.files = append(r.files, f)
	}
}

// pause waits a moment that grows with the number of failures; false: the
// listener is closed.
func (r *reserve) pause(failed int) bool {
	wait := time.NewTimer(min(time.Millisecond<<min(failed, 10), time.Second))
	defer wait.Stop()
	select {
	case <-r.gone:
		return false
	case <-wait.C:
		return true
	}
}

// close frees what is held. Closing again does nothing.
func (r *reserve) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	close(r.gone)
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
}
