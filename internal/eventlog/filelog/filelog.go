// Package filelog owns the embedded log: one directory, one owner, everything
// durable before it is visible. It knows neither gateways nor sessions, and
// nobody else knows the store beneath it. Its invariant: an ID that a caller or
// a reader has seen names the same event for ever, whatever kills the process.
package filelog

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// ErrInUse says that another process, or another part of this one, has the
// directory open.
var ErrInUse = errors.New("the log's directory is in use")

// MaxShards is the highest number of shards that the keys have room for.
const MaxShards = 1 << 16

// Options is what a log is opened with.
type Options struct {
	Dir           string        // made if it isn't there
	Shards        int           // 1 to MaxShards; must be what the log was created with
	Window        time.Duration // how long entries are kept at least
	MaxEventBytes func() int    // largest payload; asked at each append and read
	Logger        *slog.Logger
	Metrics       *Metrics // nil: not measured

	// MaxReadBytes bounds one Read over all shards; 0 means 8 MiB.
	MaxReadBytes int
	// ReadWait is how long a Read waits for an entry; 0 means 5 s.
	ReadWait time.Duration
	// MinFreeBytes is how much of the disk must stay free: below it the log
	// answers ErrFull, so that sweeping can still write, and free; 0 means 64 MiB.
	MinFreeBytes uint64
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	fs vfs.FS // tests make it fail; nil means the disk
}

func (o Options) check() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("no directory is named"))
	}
	if o.Shards < 1 || o.Shards > MaxShards {
		errs = append(errs, fmt.Errorf("%d shards are asked for, possible are 1 to %d", o.Shards, MaxShards))
	}
	if o.Window < time.Millisecond {
		errs = append(errs, fmt.Errorf("a window of %v is asked for, it must be 1ms or more", o.Window))
	}
	if o.MaxEventBytes == nil {
		errs = append(errs, errors.New("how large an event may be is not said"))
	}
	if o.Logger == nil {
		errs = append(errs, errors.New("no logger is given"))
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	if o.MaxReadBytes <= 0 {
		o.MaxReadBytes = 8 << 20
	}
	if o.ReadWait <= 0 {
		o.ReadWait = 5 * time.Second
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.fs == nil {
		o.fs = vfs.Default
	}
	return o
}

// A Log is the embedded log. It is safe for concurrent use.
type Log struct {
	// Set at construction.
	opts    Options
	db      *pebble.DB
	lock    *pebble.Lock
	shards  []*shard
	metrics *Metrics
	began   time.Time     // of the log's clock, see clock
	appends chan *request // unbuffered: who waits here has claimed nothing
	jobs    chan *job     // likewise
	closing chan struct{} // closed when Close begins
	written sync.WaitGroup
	bell    bell

	freshBytes int // how much of each shard's newest entries is kept for the tail

	first  atomic.Uint32 // the shard that the next Read begins with
	failed atomic.Pointer[diskError]

	// Owned by the writer.
	space      error // what the last look at the disk said
	spaceAsked time.Time
	groups     uint64 // how many there have been

	// life is held for reading while a call uses db.
	life      sync.RWMutex
	closed    bool // guarded by life
	closeOnce sync.Once
	closeErr  error
}

var _ eventlog.Log = (*Log)(nil)

// A shard is the live part of one shard.
type shard struct {
	// Set at construction.
	num int

	// Owned by the writer.
	issued  event.ID // IDs up to here are taken: given to an entry, or never to be
	group   uint64   // the last one that has issued an ID
	coming  coming   // what the running group adds to fresh
	pruneAt []byte   // where pruning goes on; nil while there is nothing to prune
	dropAt  []byte   // likewise of positions

	// Guarded by mu. What removes or doubts is committed under the lock, what
	// adds is published after its sync: so whoever holds the lock and opens an
	// iterator has one atomic look.
	mu    sync.RWMutex
	head  event.ID
	added uint64 // entries up to head since the log was opened
	rec   record
	fresh fresh
}

func (s *shard) look() (record, event.ID) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rec, s.head
}

// Shards is the number of shards, fixed when the log was created.
func (l *Log) Shards() int { return len(l.shards) }

// Groups is one group of all shards: one disk serves them all.
func (l *Log) Groups() [][]int {
	all := make([]int, len(l.shards))
	for i := range all {
		all[i] = i
	}
	return [][]int{all}
}

// shard checks a number that a caller gave.
func (l *Log) shard(num int) (*shard, error) {
	if num < 0 || num >= len(l.shards) {
		return nil, fmt.Errorf("shard %d is asked for, the log has 0 to %d", num, len(l.shards)-1)
	}
	return l.shards[num], nil
}

// clock is the time in ms that marks and idempotency keys age by. It goes on
// evenly from the wall clock's time at the start: a wall clock that is set
// forward must not make what has just been stored look old.
func (l *Log) clock() uint64 {
	now := l.opts.Now()
	return unixMillis(l.began.Add(now.Sub(l.began)))
}

// unixMillis is 0 for a clock that stands before 1970.
func unixMillis(t time.Time) uint64 { return uint64(max(0, t.UnixMilli())) }

// enter lets a call use the store until it calls leave.
func (l *Log) enter() error {
	l.life.RLock()
	if l.closed {
		l.life.RUnlock()
		return eventlog.ErrClosed
	}
	return nil
}

func (l *Log) leave() { l.life.RUnlock() }

// Close ends every call and closes the directory. What was answered is safe
// without it.
func (l *Log) Close() error {
	l.closeOnce.Do(func() {
		close(l.closing)
		l.written.Wait()
		l.life.Lock()
		l.closed = true
		l.life.Unlock()
		l.closeErr = errors.Join(l.closeStore(), l.lock.Close())
	})
	return l.closeErr
}

// A bell wakes whoever waits for new entries.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

// rung is closed by the next ring.
func (b *bell) rung() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
