package filelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Positions reads what is kept for devices of a shard.
func (l *Log) Positions(ctx context.Context, shard int, devices []string) (map[string]event.ID, error) {
	s, err := l.shard(shard)
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	found := make(map[string]event.ID, len(devices))
	for _, d := range devices {
		if ctx.Err() != nil {
			return nil, late(ctx)
		}
		if d == "" { // where the generation is
			continue
		}
		id, ok, err := l.position(s.num, d)
		if err != nil {
			return nil, l.unavailable(err)
		}
		if ok {
			found[d] = id
		}
	}
	return found, nil
}

func (l *Log) position(num int, device string) (id event.ID, ok bool, err error) {
	value, err := l.get(posKey(num, device))
	if errors.Is(err, pebble.ErrNotFound) {
		return event.ID{}, false, nil
	}
	if err == nil && len(value) != idBytes {
		err = fmt.Errorf("%w: position of a device", errCorrupt)
	}
	if err != nil {
		return event.ID{}, false, err
	}
	return decodeID(value), true, nil
}

// KeepPositions keeps positions without a sync of its own: what a crash of the
// machine sets back repeats events. It needs no room that must stay free:
// positions are few, and replace each other.
func (l *Log) KeepPositions(ctx context.Context, shard int, generation uint64, positions map[string]event.ID) error {
	s, err := l.shard(shard)
	if err != nil {
		return err
	}
	for d := range positions {
		if err := event.ValidateDevice(d); err != nil {
			return err
		}
	}
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	positions = maps.Clone(positions) // the caller may change his after a time-out
	return l.do(ctx, func() error { return l.keep(ctx, s, generation, positions) })
}

// keep runs on the writer.
func (l *Log) keep(ctx context.Context, s *shard, generation uint64, positions map[string]event.ID) error {
	if ctx.Err() != nil {
		return late(ctx)
	}
	b := l.db.NewBatch()
	defer b.Close()
	if err := l.fence(b, s.num, generation); err != nil {
		return err
	}
	_, head := s.look()
	for device, id := range positions {
		old, known, err := l.position(s.num, device)
		if err != nil {
			return l.unavailable(err)
		}
		if known && id.Compare(old) <= 0 && old.Compare(head) <= 0 {
			continue
		}
		if err := b.Set(posKey(s.num, device), appendID(nil, id), nil); err != nil {
			return l.unavailable(err)
		}
	}
	if b.Empty() {
		return nil
	}
	return l.commit(b, pebble.NoSync)
}

// fence refuses a generation lower than the highest there was, and notes a
// higher one.
func (l *Log) fence(b *pebble.Batch, num int, generation uint64) error {
	if generation == 0 {
		return nil
	}
	k := posKey(num, "")
	value, err := l.get(k)
	var highest uint64
	switch {
	case err == nil && len(value) == 8:
		highest = binary.BigEndian.Uint64(value)
	case err == nil:
		return l.unavailable(fmt.Errorf("%w: generation of positions", errCorrupt))
	case !errors.Is(err, pebble.ErrNotFound):
		return l.unavailable(err)
	}
	switch {
	case generation < highest:
		return eventlog.ErrFenced
	case generation == highest:
		return nil
	}
	return b.Set(k, binary.BigEndian.AppendUint64(nil, generation), nil)
}

// dropPositions drops what Since has passed: it proves nothing any more. It
// begins anew with each pruning of the notes.
func (c *change) dropPositions() (more bool) {
	if c.dropAt == nil {
		return false
	}
	num := c.shard.num
	it, err := c.log.db.NewIter(&pebble.IterOptions{LowerBound: c.dropAt, UpperBound: endOf(posPrefix, num)})
	if err != nil {
		c.note(err)
		return false
	}
	defer func() { c.note(it.Close()) }()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n > stepEntries {
			c.dropAt = append([]byte(nil), it.Key()...)
			return true
		}
		if len(it.Key()) > prefixLen && len(it.Value()) == idBytes && decodeID(it.Value()).Less(c.rec.Since) {
			c.note(c.batch.Delete(it.Key(), nil))
		}
	}
	c.dropAt = nil
	return false
}
