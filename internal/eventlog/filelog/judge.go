package filelog

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A look is one atomic view of a shard: its state, and the store as it was at
// that moment.
type look struct {
	shard int
	state eventlog.State
	added uint64 // entries that the shard got since the log was opened
	it    *pebble.Iterator
	noted map[string]event.ID // of the targets that many questions share
}

func (l *Log) look(s *shard) (*look, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	it, err := l.db.NewIter(nil)
	if err != nil {
		return nil, l.unavailable(err)
	}
	return &look{shard: s.num, state: s.rec.state(s.head), added: s.added, it: it, noted: map[string]event.ID{}}, nil
}

// held reports whether the shard holds that very entry. One above the head
// isn't synced yet; State.Judge turns it away before it asks for this.
func (k *look) held(id event.ID) (bool, error) {
	want := entryKey(k.shard, id)
	return k.it.SeekGE(want) && bytes.Equal(k.it.Key(), want), k.it.Error()
}

// note is the highest removed ID for any of the targets.
func (k *look) note(targets []string) (event.ID, error) {
	var highest event.ID
	for _, t := range targets {
		id, known := k.noted[t]
		if !known {
			want := noteKey(k.shard, t)
			if k.it.SeekGE(want) && bytes.Equal(k.it.Key(), want) {
				id = decodeID(k.it.Value())
			}
			if err := k.it.Error(); err != nil {
				return event.ID{}, err
			}
			if event.ToAll(t) {
				k.noted[t] = id
			}
		}
		highest = event.Max(highest, id)
	}
	return highest, nil
}

func (k *look) judge(q eventlog.Question) (event.Reason, error) {
	held, err := k.held(q.Cursor)
	if err != nil {
		return "", err
	}
	noted, err := k.note(q.Targets)
	if err != nil {
		return "", err
	}
	return k.state.Judge(q.Cursor, held, noted), nil
}

// Judge answers each question as one atomic look.
func (l *Log) Judge(ctx context.Context, shard int, questions []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	reasons, k, err := l.ask(ctx, shard, questions)
	if err != nil {
		return nil, eventlog.State{}, err
	}
	return reasons, k.state, nil
}

// ask is Judge; of the look that it took only the figures are left.
func (l *Log) ask(ctx context.Context, shard int, questions []eventlog.Question) ([]event.Reason, *look, error) {
	s, err := l.shard(shard)
	if err != nil {
		return nil, nil, err
	}
	if err := l.enter(); err != nil {
		return nil, nil, err
	}
	defer l.leave()
	k, err := l.look(s)
	if err != nil {
		return nil, nil, err
	}
	defer k.it.Close()
	reasons := make([]event.Reason, len(questions))
	for i, q := range questions {
		if ctx.Err() != nil {
			return nil, nil, late(ctx)
		}
		if reasons[i], err = k.judge(q); err != nil {
			return nil, nil, l.unavailable(err)
		}
	}
	return reasons, k, nil
}

// Inspect tells how each shard stands to a position.
func (l *Log) Inspect(ctx context.Context, group int, positions []event.ID) ([]eventlog.Inspection, error) {
	if group != 0 || len(positions) != len(l.shards) {
		return nil, fmt.Errorf("group %d with %d positions is asked for; the log has group 0 with %d", group, len(positions), len(l.shards))
	}
	found := make([]eventlog.Inspection, len(positions))
	for i, position := range positions {
		reasons, k, err := l.ask(ctx, i, []eventlog.Question{{Cursor: position}})
		if err != nil {
			return nil, err
		}
		found[i] = eventlog.Inspection{State: k.state, Reason: reasons[0], Lost: reasons[0] == event.LogRewound, Added: k.added}
	}
	return found, nil
}

// Suspect records that a position is gone, unless it is known already. Here
// that means that somebody exchanged the directory under a running gateway's
// devices: the log itself loses nothing.
func (l *Log) Suspect(ctx context.Context, shard int, reach event.ID) (eventlog.State, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.State{}, err
	}
	if err := l.enter(); err != nil {
		return eventlog.State{}, err
	}
	defer l.leave()
	err = l.do(ctx, func() error {
		rec, head := s.look()
		if rec.state(head).Covers(reach) {
			return nil
		}
		// Above all that the lost branch gave out, as far as that is sane.
		now := unixMillis(l.opts.Now())
		above := min(reach.Ms, now+millis(eventlog.ReachSlack))
		boundary := event.Max(s.issued.Next(), event.ID{Ms: max(now, above+1)})
		s.issued = boundary
		rec.Since = boundary
		rec = rec.withBreak(boundary, eventlog.Break{Boundary: boundary, Reach: boundary, Reason: event.LogRewound})
		return l.update(s, rec, nil, pebble.Sync)
	})
	if err != nil {
		return eventlog.State{}, err
	}
	rec, head := s.look()
	return rec.state(head), nil
}

// update commits a shard's new record, with what else belongs to it, and shows
// both at once. It runs on the writer.
func (l *Log) update(s *shard, rec record, b *pebble.Batch, how *pebble.WriteOptions) error {
	if b == nil {
		b = l.db.NewBatch()
		defer b.Close()
	}
	if err := b.Set(recordKey(s.num), rec.encode(), nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.commit(b, how); err != nil {
		return err
	}
	s.rec, s.head = rec, event.Max(s.head, rec.floor())
	return nil
}
