package filelog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// formatVersion is the version of the key and value layout that this program
// writes. It reads the one before it, too.
const formatVersion = 1

// A meta is the guard: what the log was created with.
type meta struct {
	Version int `json:"version"`
	Shards  int `json:"shards"`
}

// Open opens the log in a directory, or creates it. The error wraps ErrInUse if
// somebody has it open, and is an *eventlog.MismatchError if it was created
// with other settings.
func Open(o Options) (*Log, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("embedded log: %w", err)
	}
	l := &Log{
		opts:    o.withDefaults(),
		appends: make(chan *request),
		jobs:    make(chan *job),
		closing: make(chan struct{}),
	}
	l.began = l.opts.Now()
	if err := l.openStore(); err != nil {
		return nil, err
	}
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("log directory %q: %w", o.Dir, err), l.db.Close(), l.lock.Close())
	}
	if l.metrics = o.Metrics; l.metrics == nil {
		l.metrics = NewMetrics(nil)
	}
	l.written.Go(l.write)
	return l, nil
}

// openStore takes the directory and opens the store in it.
func (l *Log) openStore() error {
	dir, disk := l.opts.Dir, l.opts.fs
	if err := disk.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("log directory %q can't be made: %w", dir, err)
	}
	names, err := disk.List(dir)
	if err != nil {
		return fmt.Errorf("log directory %q can't be read: %w", dir, err)
	}
	if !ours(names) {
		return fmt.Errorf("log directory %q holds other files and no log; name an empty directory, or one that isn't there yet", dir)
	}
	l.lock, err = pebble.LockDirectory(dir, disk)
	if err != nil {
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			return fmt.Errorf("log directory %q can't be locked: %w", dir, err)
		}
		return fmt.Errorf("%w: %q belongs to another running gateway; stop that one, or give this one a directory of its own", ErrInUse, dir)
	}
	if err := l.openDB(); err != nil {
		return errors.Join(fmt.Errorf("log directory %q can't be opened: %w", dir, err), l.lock.Close())
	}
	return nil
}

// openDB turns the panic of a disk that fails while the store is made into an
// error (storeLogger.Fatalf).
func (l *Log) openDB() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = l.fail(p)
		}
	}()
	l.db, err = pebble.Open(l.opts.Dir, l.storeOptions())
	return err
}

// ours reports whether a directory is empty or holds a store.
func ours(names []string) bool {
	strange := false
	for _, name := range names {
		if strings.HasPrefix(name, "marker.") {
			return true
		}
		strange = strange || name != "LOCK" && name != "lost+found"
	}
	return !strange
}

// load checks the guard and reads each shard's record, or founds the log. It
// ends with a sync: from then on no ID at or below any shard's issued is free.
func (l *Log) load() error {
	known, err := l.checkMeta()
	if err != nil {
		return err
	}
	now := unixMillis(l.opts.Now())
	l.freshBytes = freshBytes / l.opts.Shards
	b := l.db.NewBatch()
	defer b.Close()
	for num := range l.opts.Shards {
		s := &shard{num: num, rec: newRecord(now)}
		s.head, s.issued = s.rec.Founded, s.rec.Founded
		if known {
			if err := l.loadShard(s, now); err != nil {
				return fmt.Errorf("shard %d: %w", num, err)
			}
		}
		if err := b.Set(recordKey(num), s.rec.encode(), nil); err != nil {
			return err
		}
		s.fresh.since = s.head
		l.shards = append(l.shards, s)
	}
	if !known {
		m, err := json.Marshal(meta{Version: formatVersion, Shards: l.opts.Shards})
		if err != nil {
			return err
		}
		if err := b.Set(metaKey, m, nil); err != nil {
			return err
		}
	}
	return l.commit(b, pebble.Sync)
}

func (l *Log) loadShard(s *shard, now uint64) error {
	value, err := l.get(recordKey(s.num))
	if err != nil {
		return err
	}
	if s.rec, err = decodeRecord(value); err != nil {
		return err
	}
	last, err := l.lastEntry(s.num)
	if err != nil {
		return err
	}
	// Sweeping removes the newest entry only together with all others: so
	s.head = event.Max(last, s.rec.floor())
	s.rec, s.issued = s.rec.opened(s.head, now)
	return nil
}

func (l *Log) lastEntry(num int) (event.ID, error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: key(entryPrefix, num), UpperBound: endOf(entryPrefix, num)})
	if err != nil {
		return event.ID{}, err
	}
	var id event.ID
	if it.Last() {
		id = keyID(it.Key())
	}
	return id, it.Close()
}

// checkMeta reports whether the directory holds a log, and refuses one that
// doesn't fit.
func (l *Log) checkMeta() (known bool, err error) {
	value, err := l.get(metaKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var m meta
	if err := json.Unmarshal(value, &m); err != nil {
		return false, fmt.Errorf("%w: meta: %w", errCorrupt, err)
	}
	if m.Version < 1 || m.Version < formatVersion-1 || m.Version > formatVersion {
		return false, l.mismatch("format version", m.Version, formatVersion)
	}
	if m.Shards != l.opts.Shards {
		return false, l.mismatch("shards", m.Shards, l.opts.Shards)
	}
	return true, nil
}

func (l *Log) mismatch(setting string, stored, configured int) error {
	return &eventlog.MismatchError{
		Log: l.opts.Dir, Setting: setting,
		Stored: strconv.Itoa(stored), Configured: strconv.Itoa(configured),
	}
}
