// Package redislog owns the log on Redis Streams: its keys, its scripts, its
// connections and what they can and can't prove about the past. It owns
// neither the pace of reading nor of sweeping. Its invariant: whatever it
// can't prove complete (a removal that it did not do itself, a stream or a
// record that is gone, a server that may have lost its tail) makes cursors
// doubtful, never complete.
package redislog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Failover says what is told to devices when the server changed and nothing
// proves that it lost nothing.
type Failover string

// The two values of Failover.
const (
	// Cautious puts every cursor from before in doubt (log-uncertain).
	Cautious Failover = "cautious"
	// Evidence puts cursors in doubt only where something is known to be lost.
	Evidence Failover = "evidence"
)

// Options configure Open. The zero value of a field marked with a default
// means that default.
type Options struct {
	URL           string        // one of redisurl.Forms
	TLS           TLSFiles      // for rediss
	Groups        int           // in a cluster: groups of shards, each in one slot; fixed when the log is created; default 16
	Prefix        string        // of every key; default "pos-ev"
	Shards        int           // fixed when the log is created; default 64
	Window        time.Duration // how long an entry is kept at least; default 15 min
	MaxEventBytes func() int    // payloads over it are read as FaultTooLarge; nil, or 0, means no limit; asked at each read
	SweepStep     time.Duration // how often Sweep is going to be called for a shard; default 5 s
	AllowEviction bool          // accept a server that may evict keys, and with them events
	Failover      Failover      // default Cautious
	Replicas      int           // that must have an event before it counts as stored; 0: none
	ReadReplica   bool          // the tail reads a replica, as long as one follows
	CallTimeout   time.Duration // limit of a call whose context has none; default 3 s
	BlockTime     time.Duration // how long a Read waits for entries, within BlockTime + CallTimeout in all; default 2 s
	Logger        *slog.Logger
	Metrics       *Metrics // from NewMetrics

	notesKept   time.Duration // eventlog.NotesKept; a test can't wait for a week
	format      int           // formatVersion; a test plays the gateways of the next one
	replicaWait time.Duration // replicaWait; on a busy machine a test has to give more
	dialTimeout time.Duration // dialTimeout; likewise
}

// TLSFiles are PEM files. An empty name means: the system's authorities, no
// client certificate.
type TLSFiles struct {
	CA        string // certificates that vouch for the server
	Cert, Key string // the client's; both or none
}

func (o *Options) fill() error {
	setDefault(&o.Prefix, "pos-ev")
	setDefault(&o.Shards, 64)
	setDefault(&o.Groups, 16)
	setDefault(&o.Window, 15*time.Minute)
	setDefault(&o.SweepStep, 5*time.Second)
	setDefault(&o.Failover, Cautious)
	setDefault(&o.CallTimeout, 3*time.Second)
	setDefault(&o.BlockTime, 2*time.Second)
	setDefault(&o.notesKept, eventlog.NotesKept)
	setDefault(&o.format, formatVersion)
	setDefault(&o.replicaWait, replicaWait)
	setDefault(&o.dialTimeout, dialTimeout)
	if o.MaxEventBytes == nil {
		o.MaxEventBytes = func() int { return 0 }
	}
	switch {
	case o.Shards < 1:
		return fmt.Errorf("shards is %d: it must be at least 1", o.Shards)
	case o.Groups < 1 || o.Groups > maxGroups:
		return fmt.Errorf("groups is %d: it must be from 1 to %d", o.Groups, maxGroups)
	case o.Replicas < 0:
		return errors.New("replicas can't be negative")
	case o.Window < 0 || o.SweepStep < 0 || o.CallTimeout < 0:
		return errors.New("window, sweep step and call timeout can't be negative")
	case o.BlockTime < time.Millisecond:
		return fmt.Errorf("block time is %v: under 1 ms Redis would wait for ever", o.BlockTime)
	case o.Failover != Cautious && o.Failover != Evidence:
		return fmt.Errorf("failover is %q: choose %q or %q", o.Failover, Cautious, Evidence)
	case o.Logger == nil || o.Metrics == nil:
		return errors.New("redislog needs a logger and metrics")
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Log is the log on Redis, 7.0 or newer: on one server, on several, or in a
// cluster. It implements eventlog.Log and is safe for concurrent use.
type Log struct {
	// Set at construction.
	opts    Options
	place   place
	atlas   *atlas
	guards  []*guard
	groups  []*group
	byShard []shard
	pages   *sizer

	// refusal is set for good when the guard turns out to name another layout.
	refusal atomic.Pointer[eventlog.MismatchError]

	closing sync.Once
}

var _ eventlog.Log = (*Log)(nil)

// Open connects, checks that the server and the guard fit, and returns the log.
// The error wraps ErrUnavailable if it may help to try again later.
func Open(ctx context.Context, opts Options) (*Log, error) {
	l, err := find(opts)
	if err != nil {
		return nil, err
	}
	if err = l.arrange(ctx); err == nil {
		err = l.check(ctx)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	l.atlas.start()
	return l, nil
}

// find makes a log that has asked nobody yet.
func find(opts Options) (*Log, error) {
	if err := opts.fill(); err != nil {
		return nil, err
	}
	p, err := parsePlace(opts.URL, opts.TLS)
	if err != nil {
		return nil, err
	}
	l := &Log{opts: opts, place: p, pages: newSizer()}
	l.atlas = newAtlas(&l.opts)
	return l, nil
}

// check asks whether the servers can keep the contract, and whether the log in
// them has our layout.
func (l *Log) check(ctx context.Context) error {
	var seen []*node
	for _, h := range l.atlas.homes {
		if n := h.node(); !slices.Contains(seen, n) {
			seen = append(seen, n)
			if err := checkServer(ctx, n, &l.opts, l.place.form); err != nil {
				return err
			}
		}
	}
	for _, g := range l.guards {
		if err := l.adopt(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// Shards is the number of shards.
func (l *Log) Shards() int { return l.opts.Shards }

// Groups lists which shards one Read serves: on one server, all of them.
func (l *Log) Groups() [][]int {
	out := make([][]int, len(l.groups))
	for i, g := range l.groups {
		out[i] = append([]int(nil), g.shards...)
	}
	return out
}

// Close ends every call and the connections. Calls after it return ErrClosed.
func (l *Log) Close() error {
	l.closing.Do(func() {
		l.atlas.close()
	})
	return nil
}

// shard gives the shard's keys and server, or says that there is none.
func (l *Log) shard(i int) (*shard, error) {
	if i < 0 || i >= len(l.byShard) {
		return nil, fmt.Errorf("shard %d: this log has shards 0 to %d", i, len(l.byShard)-1)
	}
	return &l.byShard[i], nil
}

// A group is the shards that one blocking read serves: they live on one server
// and, in a cluster, in one slot.
type group struct {
	home   *home
	guard  *guard
	shards []int
	keys   []string       // of the streams, in the order of shards
	known  []*small       // likewise
	places map[string]int // key → index into shards
	tail   tail
	along  along
}

// A shard is where one shard's keys are.
type shard struct {
	index     int
	home      *home
	group     *group
	place     int // in the group
	stream    string
	record    string // <stream>:sweep
	notes     string // <stream>:gone
	revoked   string // <stream>:revoked
	positions string // <stream>:pos
	foreign   *atomic.Uint64
	prune     *pruner
	acked     *acked
	known     *small
}

func (s *shard) keys() []string { return []string{s.stream, s.record, s.notes} }

// startOf is the exclusive lower end of a range as XRANGE takes it.
func startOf(after event.ID) string { return "(" + after.String() }
