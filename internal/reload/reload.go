// Package reload owns the rhythm in which files of settings, keys and
// certificates are read again, how much of one is read at most, and what is said
// about it. It doesn't know what is in them: each source compares and takes over by
// itself. Its invariant: a file that can't be used changes nothing, and is complained
// about once.
package reload

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// A Source is one or more files that belong together.
type Source struct {
	Name string // in logs and metrics, such as "tls"
	// Load reads the files. It reports whether they have other content than
	// before; after an error what was loaded before must still be in use.
	Load func() (changed bool, err error)
}

// Options for a Watcher.
type Options struct {
	Sources  []Source
	Interval time.Duration    // 0 means 5 s
	Hangup   <-chan os.Signal // has them looked at at once; nil: nothing does
	Metrics  *Metrics
	Logger   *slog.Logger
}

// A Watcher loads its sources again and again. Looking at the content, not at
// the file's time, it misses nothing that was written within one tick of the
// file system's clock, and follows symbolic links that are exchanged.
type Watcher struct {
	opts Options
	said []string // the last complaint about each source
}

// New makes a watcher; Run lets it look.
func New(o Options) *Watcher {
	if o.Interval <= 0 {
		o.Interval = 5 * time.Second
	}
	return &Watcher{opts: o, said: make([]string, len(o.Sources))}
}

// Run looks at the files at each interval until ctx ends; then it returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(w.opts.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.lookAtAll()
		case <-w.opts.Hangup:
			w.opts.Logger.Info("asked to read the files again")
			w.lookAtAll()
		}
	}
}

func (w *Watcher) lookAtAll() {
	for i, s := range w.opts.Sources {
		w.said[i] = w.look(s, w.said[i])
	}
}

// look loads one source and returns the complaint that stands.
func (w *Watcher) look(s Source, said string) string {
	changed, err := s.Load()
	switch {
	case err != nil && err.Error() != said:
		w.opts.Metrics.loads.WithLabelValues(s.Name, loadFailed).Inc()
		w.opts.Logger.Error("a changed file can't be used; what was read before stays in use", "source", s.Name, "error", err)
		return err.Error()
	case err != nil:
		return said
	case changed:
		w.opts.Metrics.loads.WithLabelValues(s.Name, loadDone).Inc()
		w.opts.Logger.Info("changed files are in use", "source", s.Name)
	case said != "":
		w.opts.Logger.Info("the files can be used again; they are as before", "source", s.Name)
	}
	return ""
}
