package filelog

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Read waits until a shard holds entries after its position. One answer holds
// MaxReadBytes and one entry at most, shared out among the shards that have
// something.
func (l *Log) Read(ctx context.Context, group int, after []event.ID) ([]eventlog.Batch, error) {
	if group != 0 || len(after) != len(l.shards) {
		return nil, fmt.Errorf("group %d with %d positions is asked for; the log has group 0 with %d", group, len(after), len(l.shards))
	}
	timeout := time.NewTimer(l.opts.ReadWait)
	defer timeout.Stop()
	for {
		rung := l.bell.rung() // before the look: what comes after it rings
		batches, err := l.collect(after)
		if err != nil || len(batches) > 0 {
			return batches, err
		}
		select {
		case <-rung:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, late(ctx)
		case <-l.closing:
			return nil, eventlog.ErrClosed
		}
	}
}

// collect reads what there is now.
func (l *Log) collect(after []event.ID) ([]eventlog.Batch, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	ready := l.ready(after)
	if len(ready) == 0 {
		return nil, nil
	}
	it := lazyIter{db: l.db}
	defer it.close()
	batches := make([]eventlog.Batch, 0, len(ready))
	left := l.opts.MaxReadBytes
	for i, s := range ready {
		if left <= 0 {
			l.first.Store(uint32(s.num)) // it begins the next time
			for _, s := range ready[i:] {
				batches = append(batches, eventlog.Batch{Shard: s.num})
			}
			break
		}
		run := run{shard: s.num, after: after[s.num], upTo: s.upTo, maxBytes: left / (len(ready) - i)}
		run.entries, run.size, run.whole = l.shards[s.num].take(run.after, run.maxBytes)
		if !run.whole {
			if err := l.readStored(&it, &run); err != nil {
				return nil, l.unavailable(err)
			}
		}
		left -= run.size
		if len(run.entries) > 0 { // else swept since the look
			batches = append(batches, eventlog.Batch{Shard: s.num, Entries: run.entries, Drained: run.whole})
		}
	}
	return batches, nil
}

// lazyIter is an iterator over all entries, made when it is first needed.
type lazyIter struct {
	db *pebble.DB
	it *pebble.Iterator
}

func (z *lazyIter) close() {
	if z.it != nil {
		_ = z.it.Close() // its error was seen
	}
}

func (l *Log) readStored(z *lazyIter, r *run) (err error) {
	if z.it == nil {
		z.it, err = z.db.NewIter(&pebble.IterOptions{LowerBound: []byte{entryPrefix}, UpperBound: []byte{entryPrefix + 1}})
		if err != nil {
			return err
		}
	}
	return l.readRun(z.it, r)
}

// A readyShard holds entries up to upTo that its reader hasn't seen.
type readyShard struct {
	num  int
	upTo event.ID
}

// ready lists the shards with something after their position, those first
// that went short the last time.
func (l *Log) ready(after []event.ID) []readyShard {
	var list []readyShard
	first := int(l.first.Load())
	for i := range l.shards {
		s := l.shards[(first+i)%len(l.shards)]
		rec, head := s.look()
		if event.Max(after[s.num], rec.Swept).Less(head) {
			list = append(list, readyShard{s.num, head})
		}
	}
	return list
}

// A run is a part of one shard, asked for and read.
type run struct {
	shard       int
	after, upTo event.ID
	maxBytes    int // stop before it is exceeded, but not before the first entry

	entries []eventlog.Entry
	size    int
	whole   bool // everything in (after, upTo] is in entries
}

func (l *Log) readRun(it *pebble.Iterator, r *run) error {
	if r.after.Compare(r.upTo) >= 0 {
		r.whole = true
		return nil
	}
	for ok := it.SeekGE(entryKey(r.shard, r.after.Next())); ok; ok = it.Next() {
		k := it.Key()
		if !isEntryOf(k, r.shard) || r.upTo.Less(keyID(k)) {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		size := len(k) + len(value)
		if len(r.entries) > 0 && r.size+size > r.maxBytes {
			return it.Error()
		}
		entry, err := decodeEntry(keyID(k), value, l.opts.MaxEventBytes())
		if err != nil {
			return fmt.Errorf("shard %d, entry %s: %w", r.shard, keyID(k), err)
		}
		r.entries, r.size = append(r.entries, entry), r.size+size
	}
	r.whole = true
	return it.Error()
}

func isEntryOf(k []byte, shard int) bool {
	return len(k) == prefixLen+idBytes && k[0] == entryPrefix && int(k[1])<<8|int(k[2]) == shard
}

// Range reads entries in (after, upTo], oldest first.
func (l *Log) Range(ctx context.Context, shard int, after, upTo event.ID, maxBytes int) (eventlog.Page, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.Page{}, err
	}
	if err := l.enter(); err != nil {
		return eventlog.Page{}, err
	}
	defer l.leave()
	if ctx.Err() != nil {
		return eventlog.Page{}, late(ctx)
	}
	_, head := s.look() // before the iterator, which then holds all up to it
	visible := upTo
	if head.Less(visible) {
		visible = head // what lies above isn't synced yet
	}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: key(entryPrefix, shard), UpperBound: endOf(entryPrefix, shard)})
	if err != nil {
		return eventlog.Page{}, l.unavailable(err)
	}
	defer it.Close()
	r := run{shard: shard, after: after, upTo: visible, maxBytes: maxBytes}
	if err := l.readRun(it, &r); err != nil {
		return eventlog.Page{}, l.unavailable(err)
	}
	page := eventlog.Page{Entries: r.entries, Through: upTo}
	if !r.whole {
		page.Through = r.entries[len(r.entries)-1].ID
	}
	return page, nil
}
