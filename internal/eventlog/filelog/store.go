package filelog

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"downlink/internal/eventlog"
)

// storeOptions is small on purpose: a window of events is mostly in memory
// anyway, and a gateway's memory belongs to its connections.
func (l *Log) storeOptions() *pebble.Options {
	logger := storeLogger{l.opts.Logger}
	return &pebble.Options{
		FS:   l.opts.fs,
		Lock: l.lock,
		// By name, not "newest": a newer library must not make the directory
		// unreadable for the program that is to be rolled back to.
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 4,
		CacheSize:                   16 << 20,
		MaxOpenFiles:                128,
		Logger:                      logger,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { logger.Errorf("%v", err) },
			// The default ends the process; the read that found it fails anyway.
			DataCorruption: func(info pebble.DataCorruptionInfo) { logger.Errorf("%v", info) },
		},
	}
}

// A storeLogger keeps the store's talk out of our log, but for its troubles.
type storeLogger struct{ log *slog.Logger }

func (s storeLogger) Infof(format string, args ...any) {
	s.log.Debug("the log's store says", "text", fmt.Sprintf(format, args...))
}

func (s storeLogger) Errorf(format string, args ...any) {
	s.log.Warn("the log's store has trouble with its disk; it tries again", "error", fmt.Sprintf(format, args...))
}

// Fatalf must not return: the store would go on as if its disk had obeyed. In
// the writer the panic is caught (commit); in one of the store's own
// goroutines, after a failed write to its manifest, it ends the process, and
// what was answered is safe.
func (s storeLogger) Fatalf(format string, args ...any) {
	e := &diskError{text: fmt.Sprintf(format, args...)}
	// Said before the panic: the store's deferred calls may make it one that
	// nobody can catch.
	s.log.Error("the log's store can't go on with its disk", "error", e.text)
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.cause = err
		}
	}
	panic(e)
}

// A diskError is a write that the disk failed. Nobody can tell what of it is
// stored, so nothing more is written until the log is opened anew.
type diskError struct {
	dir   string
	text  string
	cause error
}

func (e *diskError) Error() string {
	return fmt.Sprintf("the disk failed a write (%s); no more events are taken in %q: mend the disk, then restart the gateway", e.text, e.dir)
}

// Unwrap makes it ErrFull or ErrUnavailable, so that callers know that nothing
// is claimed.
func (e *diskError) Unwrap() []error {
	kind := eventlog.ErrUnavailable
	if vfs.IsNoSpaceError(e.cause) {
		kind = eventlog.ErrFull
	}
	if e.cause == nil {
		return []error{kind}
	}
	return []error{kind, e.cause}
}

// commit writes a batch. After an error nothing is written any more.
func (l *Log) commit(b *pebble.Batch, how *pebble.WriteOptions) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = l.fail(p)
		}
	}()
	if e := l.failed.Load(); e != nil {
		return e
	}
	if err := b.Commit(how); err != nil {
		return l.fail(err)
	}
	return nil
}

// fail records what a write died of. The store panics with an error where it
// can't go on; a panic with anything else is a fault of the program. It is
// logged once, here: the callers' errors are answers to publishers, and whoever
// runs the gateway must learn that it needs a restart.
func (l *Log) fail(cause any) error {
	e, ok := cause.(*diskError)
	if !ok {
		err, isErr := cause.(error)
		if fault := runtime.Error(nil); !isErr || errors.As(err, &fault) {
			panic(cause)
		}
		e = &diskError{text: err.Error(), cause: err}
	}
	e.dir = l.opts.Dir
	if l.failed.CompareAndSwap(nil, e) {
		l.metrics.failed.Set(1)
		l.opts.Logger.Error("the log takes no more events", "error", e)
	}
	return e
}

// Stopped reports whether the disk has failed a write: what is stored can be read
// on, and nothing more is taken until the log is opened anew. A disk that is full
// is not that: it has room again when something was swept.
func (l *Log) Stopped() bool { return l.failed.Load() != nil }

// room says whether the disk has room for more events. It asks at most once a
// second: a burst can't fill what MinFreeBytes leaves in that time unnoticed.
func (l *Log) room() error {
	if time.Since(l.spaceAsked) < time.Second {
		return l.space
	}
	before := l.space
	l.spaceAsked, l.space = time.Now(), l.measure()
	switch {
	case l.space != nil && before == nil:
		l.opts.Logger.Warn("the log takes no events for now", "error", l.space)
	case l.space == nil && before != nil:
		l.opts.Logger.Warn("the log takes events again")
	}
	if l.space != nil {
		// What was swept is freed only when the removal itself has left memory,
		// and without appends nothing else would push it out. Failing here is
		// no news: the next append that is let through tells.
		_, _ = l.db.AsyncFlush()
	}
	return l.space
}

func (l *Log) measure() error {
	usage, err := l.opts.fs.GetDiskUsage(l.opts.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("%w: asking for the room under %q: %w", eventlog.ErrUnavailable, l.opts.Dir, err)
	case usage.AvailBytes < l.opts.MinFreeBytes:
		return fmt.Errorf("%w: the disk under %q has %d MiB left, and %d must stay free; make room, or shorten the window",
			eventlog.ErrFull, l.opts.Dir, usage.AvailBytes>>20, l.opts.MinFreeBytes>>20)
	}
	return nil
}

// closeStore closes the store. One whose disk failed may hold a lock that its
// panic left behind; then it is left to the end of the process.
func (l *Log) closeStore() error {
	if l.failed.Load() == nil {
		return l.db.Close()
	}
	closed := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				closed <- fmt.Errorf("closing %q after its disk failed: %v", l.opts.Dir, p)
			}
		}()
		closed <- l.db.Close()
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(2 * time.Second):
		return fmt.Errorf("the store in %q doesn't close after its disk failed", l.opts.Dir)
	}
}

// get reads one value; the error is pebble.ErrNotFound if there is none.
func (l *Log) get(k []byte) ([]byte, error) {
	value, closer, err := l.db.Get(k)
	if err != nil {
		return nil, err
	}
	value = slices.Clone(value)
	return value, closer.Close()
}

// has reports whether a key is there.
func (l *Log) has(k []byte) (bool, error) {
	_, closer, err := l.db.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// unavailable wraps what a read of the store failed with.
func (l *Log) unavailable(err error) error {
	return fmt.Errorf("%w: reading %q: %w", eventlog.ErrUnavailable, l.opts.Dir, err)
}
