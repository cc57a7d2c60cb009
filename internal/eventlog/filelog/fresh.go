package filelog

import (
	"slices"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// freshBytes is how much of the newest entries is kept for the tail, over all
// shards; entryBytes is what one costs beside its texts.
const (
	freshBytes = 4 << 20
	entryBytes = 128
)

// fresh is what was stored in a shard since the tail was there last, so that it
// needn't seek in the store for what has just been written into it: a seek costs
// more than all the rest of an event's way. There is one tail; what it has taken
// is forgotten here. Guarded by the shard's mu.
type fresh struct {
	since   event.ID // entries holds everything that was stored after it
	entries []eventlog.Entry
	size    int
}

// coming is what the running group adds to it. Owned by the writer.
type coming struct {
	entries []eventlog.Entry
	size    int
	count   int // of the entries, those that were too much to keep included
}

// keep notes an entry that was put into the running group's batch.
func (c *coming) keep(id event.ID, value []byte, maxEvent, most int) error {
	c.count++
	if c.size += len(value) + entryBytes; c.size > most {
		c.entries = nil // too much to keep: the tail reads it from the store
		return nil
	}
	e, err := decodeEntry(id, value, maxEvent)
	c.entries = append(c.entries, e)
	return err
}

// publishLocked shows what the group has stored up to head, or forgets it if it
// is too much with what is there already.
func (s *shard) publishLocked(head event.ID, most int) {
	f, c := &s.fresh, &s.coming
	s.head, s.added = head, s.added+uint64(c.count)
	switch {
	case f.size+c.size > most:
		*f = fresh{since: head}
	case len(f.entries) == 0:
		f.entries, f.size = c.entries, c.size
	default:
		f.entries, f.size = append(f.entries, c.entries...), f.size+c.size
	}
	*c = coming{}
}

// take hands over everything that was stored after a position, if it is all
// here and not more than maxBytes. The position may be asked for again: then
// the store answers.
func (s *shard) take(after event.ID, maxBytes int) (entries []eventlog.Entry, size int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after.Less(s.fresh.since) || s.fresh.size > maxBytes {
		return nil, 0, false
	}
	entries, size = s.fresh.entries, s.fresh.size
	s.fresh = fresh{since: s.head}
	gone := event.Max(after, s.rec.Swept)
	return slices.DeleteFunc(entries, func(e eventlog.Entry) bool { return e.ID.Compare(gone) <= 0 }), size, true
}
