package filelog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Claim gives a name to its first caller, with one sync: after a crash it is
// still given away. Sweeping forgets names that are free again.
func (l *Log) Claim(ctx context.Context, shard int, name string, ttl time.Duration) (bool, error) {
	s, err := l.shard(shard)
	if err != nil {
		return false, err
	}
	if ttl < time.Millisecond {
		return false, fmt.Errorf("a claim for %v: it must be 1ms or more", ttl)
	}
	if err := l.enter(); err != nil {
		return false, err
	}
	defer l.leave()
	hash := sha256.Sum256([]byte(name))
	done := make(chan bool, 1)
	err = l.do(ctx, func() error {
		first, err := l.claim(ctx, s, hash, ttl)
		done <- first
		return err
	})
	return err == nil && <-done, err
}

// claim runs on the writer.
func (l *Log) claim(ctx context.Context, s *shard, hash [hashBytes]byte, ttl time.Duration) (bool, error) {
	if ctx.Err() != nil {
		return false, late(ctx)
	}
	if err := l.room(); err != nil {
		return false, err
	}
	k, now := claimKey(s.num, hash), l.clock()
	value, err := l.get(k)
	if err == nil {
		var until uint64
		if until, err = decodeMoment(value); err == nil && now < until {
			return false, nil
		}
	}
	if err != nil && !errors.Is(err, pebble.ErrNotFound) {
		return false, l.unavailable(err)
	}
	until := now + millis(ttl)
	b := l.db.NewBatch()
	defer b.Close()
	err = errors.Join(
		b.Set(k, binary.BigEndian.AppendUint64(nil, until), nil),
		b.Set(freeKey(s.num, until, hash), nil, nil),
	)
	if err != nil {
		return false, l.unavailable(err)
	}
	return true, l.commit(b, pebble.Sync)
}

func decodeMoment(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: claim", errCorrupt)
	}
	return binary.BigEndian.Uint64(b), nil
}

// release forgets names that are free again.
func (c *change) release(now uint64) (more bool) {
	num := c.shard.num
	it, err := c.log.db.NewIter(&pebble.IterOptions{LowerBound: key(freePrefix, num), UpperBound: binary.BigEndian.AppendUint64(key(freePrefix, num), now+1)})
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
		until, hash := it.Key()[prefixLen:prefixLen+8], it.Key()[prefixLen+8:]
		k := append(key(claimPrefix, num), hash...)
		value, err := c.log.get(k)
		switch {
		case err == nil && string(value) == string(until): // else it was claimed again since
			c.note(c.batch.Delete(k, nil))
		case err != nil && !errors.Is(err, pebble.ErrNotFound):
			c.note(err)
		}
		c.note(c.batch.Delete(it.Key(), nil))
	}
	return false
}
