package filelog

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// stepEntries and stepBytes bound what one Sweep reads, and stepEntries what
// else it removes; stepNotes bounds what it takes from its caller's memory.
const (
	stepEntries = 1000
	stepBytes   = 8 << 20
	stepNotes   = 10 * stepEntries
)

// A plan is one step of sweeping, worked out without holding anything up.
type plan struct {
	from, upTo event.ID // what is removed; nothing if they are equal
	notes      map[string]event.ID
	entries    int
	more       bool
}

// Sweep does one step on a shard. What it writes isn't synced: a crash undoes
// removal and notes together.
func (l *Log) Sweep(ctx context.Context, shard int, recent eventlog.Recent) (eventlog.SweepReport, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.SweepReport{}, err
	}
	if err := l.enter(); err != nil {
		return eventlog.SweepReport{}, err
	}
	defer l.leave()
	p, err := l.plan(s, recent)
	if err != nil {
		return eventlog.SweepReport{}, l.unavailable(err)
	}
	var report eventlog.SweepReport
	err = l.do(ctx, func() (err error) {
		// Its own variable: after a time-out nobody waits, and the job still runs.
		var r eventlog.SweepReport
		r, err = l.step(s, p)
		if err == nil {
			report = r
		}
		if l.space != nil {
			_ = l.room() // a full disk gets its room back while nobody publishes, too
		}
		return err
	})
	if err != nil {
		return eventlog.SweepReport{}, err
	}
	return report, nil
}

// plan finds what is older than the window and whom it was for.
func (l *Log) plan(s *shard, recent eventlog.Recent) (plan, error) {
	rec, _ := s.look()
	p := plan{from: rec.Swept, upTo: event.Max(rec.Swept, due(rec.Marks, l.clock(), l.opts.Window))}
	if p.from == p.upTo {
		return p, nil
	}
	if recent != nil {
		notes, entries, ok := recent.Notes(s.num, p.from, p.upTo)
		if ok && len(notes) <= stepNotes {
			p.notes, p.entries = notes, entries
			return p, nil
		}
	}
	return p, l.readNotes(s, &p)
}

// readNotes reads the notes from the entries, and shortens the plan to what
// one step may read.
func (l *Log) readNotes(s *shard, p *plan) error {
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound: entryKey(s.num, p.from.Next()),
		UpperBound: entryKey(s.num, p.upTo.Next()),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	p.notes = map[string]event.ID{}
	size, last := 0, p.from
	for ok := it.First(); ok; ok = it.Next() {
		if p.entries == stepEntries || size >= stepBytes {
			p.upTo, p.more = last, true
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		target, err := targetOf(value)
		if err != nil {
			return err
		}
		last = keyID(it.Key())
		p.notes[target] = last
		p.entries, size = p.entries+1, size+len(value)
	}
	return it.Error()
}

// step carries out a plan, and what else is due on the shard. It runs on the
// writer.
func (l *Log) step(s *shard, p plan) (eventlog.SweepReport, error) {
	rec, head := s.look()
	now := l.clock() // after the look: no entry up to head is younger than its mark
	if rec.Swept != p.from {
		return eventlog.SweepReport{More: true}, nil // another sweeper was faster
	}
	c := change{log: l, shard: s, rec: rec, batch: l.db.NewBatch()}
	defer c.batch.Close()
	report := eventlog.SweepReport{More: p.more}
	if p.from != p.upTo {
		c.remove(p)
		report.Removed = p.entries
	}
	c.markHead(head, now)
	report.More = c.forget() || report.More
	report.More = c.release(now) || report.More
	pruned, more := c.prune(now)
	more = c.dropPositions() || more
	report.Pruned, report.More = pruned, report.More || more
	if c.err != nil {
		return eventlog.SweepReport{}, l.unavailable(c.err)
	}
	if !c.changed && c.batch.Empty() {
		return report, nil
	}
	if err := l.update(s, c.rec, c.batch, pebble.NoSync); err != nil {
		return eventlog.SweepReport{}, err
	}
	s.pruneAt, s.dropAt = c.pruneAt, c.dropAt
	return report, nil
}

// A change gathers what one step writes.
type change struct {
	log     *Log
	shard   *shard
	rec     record
	batch   *pebble.Batch
	changed bool   // of the record
	pruneAt []byte // the shard's, once this is committed
	dropAt  []byte // likewise
	err     error  // the first one
}

func (c *change) note(err error) { c.err = errors.Join(c.err, err) }

// remove takes the plan's entries away and notes for whom they were. Nothing
// can have entered the range meanwhile: IDs only rise.
func (c *change) remove(p plan) {
	num := c.shard.num
	for target, id := range p.notes {
		c.note(c.batch.Set(noteKey(num, target), appendID(nil, id), nil))
	}
	c.note(c.batch.DeleteRange(entryKey(num, p.from.Next()), entryKey(num, p.upTo.Next()), nil))
	c.rec.Swept = p.upTo
	c.rec.Marks = dropMarks(c.rec.Marks, p.upTo)
	c.changed = true
}

// markHead notes where the head stands now. An emptied shard needs no mark.
func (c *change) markHead(head event.ID, now uint64) {
	if !c.rec.Swept.Less(head) {
		return
	}
	every := max(c.log.opts.Window/60, time.Millisecond)
	marks, added := addMark(c.rec.Marks, mark{At: now, ID: head}, every, maxMarks)
	c.rec.Marks, c.changed = marks, c.changed || added
}

// forget drops idempotency keys all of whose entries are swept.
func (c *change) forget() (more bool) {
	num := c.shard.num
	it, err := c.log.db.NewIter(&pebble.IterOptions{LowerBound: key(expiryPrefix, num), UpperBound: expiryKey(num, c.rec.Swept.Next())})
	if err != nil {
		c.note(err)
		return false
	}
	defer func() { c.note(it.Close()) }()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n > stepEntries {
			return true
		}
		k := append(key(oncePrefix, num), it.Value()...)
		value, err := c.log.get(k)
		if err == nil {
			// The key may have been used again since, and stand for newer entries.
			if s, err := decodeStored(value); err != nil || s.last().Compare(c.rec.Swept) <= 0 {
				c.note(c.batch.Delete(k, nil))
			}
		} else if !errors.Is(err, pebble.ErrNotFound) {
			c.note(err)
		}
		c.note(c.batch.Delete(it.Key(), nil))
	}
	return false
}

// prune drops notes older than NotesKept. Since rises to the highest of them
// that can have been dropped, and in the first batch: the order in which they
// go then doesn't matter.
func (c *change) prune(now uint64) (pruned int, more bool) {
	c.pruneAt, c.dropAt = c.shard.pruneAt, c.shard.dropAt
	if bound := due(c.rec.Days, now, eventlog.NotesKept); !bound.IsZero() {
		c.rec.Since = event.Max(c.rec.Since, bound)
		c.rec.Days = dropMarks(c.rec.Days, bound)
		c.pruneAt, c.dropAt, c.changed = key(notePrefix, c.shard.num), key(posPrefix, c.shard.num), true
	}
	if c.rec.Swept != c.rec.Founded {
		days, added := addMark(c.rec.Days, mark{At: now, ID: c.rec.Swept}, day, maxDays)
		c.rec.Days, c.changed = days, c.changed || added
	}
	if c.pruneAt == nil {
		return 0, false
	}
	return c.pruneNotes()
}

func (c *change) pruneNotes() (pruned int, more bool) {
	it, err := c.log.db.NewIter(&pebble.IterOptions{LowerBound: c.pruneAt, UpperBound: endOf(notePrefix, c.shard.num)})
	if err != nil {
		c.note(err)
		return 0, false
	}
	defer func() { c.note(it.Close()) }()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n > stepEntries {
			c.pruneAt = append([]byte(nil), it.Key()...)
			return pruned, true
		}
		if decodeID(it.Value()).Compare(c.rec.Since) <= 0 {
			c.note(c.batch.Delete(it.Key(), nil))
			pruned++
		}
	}
	c.pruneAt = nil
	return pruned, false
}
