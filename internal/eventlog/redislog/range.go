package redislog

import (
	"context"
	"math"
	"slices"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Range reads entries in (after, upTo], oldest first, from the primary.
func (l *Log) Range(ctx context.Context, shard int, after, upTo event.ID, maxBytes int) (eventlog.Page, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.Page{}, err
	}
	return l.rangeOf(ctx, callRange, s, after, upTo, limits{maxBytes, math.MaxInt})
}

// limits are how much a page holds at most, about: at least one entry.
type limits struct{ bytes, entries int }

func (l *Log) rangeOf(ctx context.Context, call callName, s *shard, after, upTo event.ID, most limits) (eventlog.Page, error) {
	page := eventlog.Page{Through: upTo}
	for left := most.bytes; after.Less(upTo); {
		found, more, err := l.piece(ctx, call, s, after, upTo, limits{left, most.entries - len(page.Entries)})
		if err != nil {
			return eventlog.Page{}, err
		}
		fit := 0
		for ; fit < len(found); fit++ {
			size := sizeOf(&found[fit])
			if size > left && fit+len(page.Entries) > 0 {
				break
			}
			left -= size
		}
		page.Entries = append(slices.Grow(page.Entries, fit), found[:fit]...)
		if fit < len(found) {
			page.Through = page.Entries[len(page.Entries)-1].ID
			return page, nil
		}
		if !more {
			return page, nil
		}
		after = found[len(found)-1].ID
		if (left <= 0 || len(page.Entries) >= most.entries) && after.Less(upTo) {
			page.Through = after
			return page, nil
		}
	}
	return page, nil
}

// piece reads some entries, at least one if there is one: by number where all
// of them are known to be small, else by a script that counts bytes. more says
// that there may be others behind them.
func (l *Log) piece(ctx context.Context, call callName, s *shard, after, upTo event.ID, most limits) (found []eventlog.Entry, more bool, err error) {
	count := min(l.pages.count(most.bytes, 1), int64(most.entries))
	if count == 1 || s.known.covers(after, upTo) {
		cmd := s.home.b().Xrange().Key(s.stream).Start(startOf(after)).End(upTo.String()).Count(count).Build()
		reply, err := s.home.do(ctx, call, cmd)
		if err != nil {
			return nil, false, err
		}
		found, _, err = entries(reply, l.opts.MaxEventBytes(), l.pages)
		return found, int64(len(found)) == count, err
	}
	most.bytes = min(most.bytes, mostBudget)
	reply, err := s.home.eval(ctx, call, pageScript, []string{s.stream}, append(pageArgs(most, upTo, 1), after.String()))
	if err != nil {
		return nil, false, err
	}
	_, parts, err := readSlices(reply)
	if err != nil || len(parts) == 0 {
		return nil, false, err
	}
	found, _, err = entries(parts[0].entries, l.opts.MaxEventBytes(), l.pages)
	return found, parts[0].more, err
}

// sizeOf is what an entry costs in a page.
func sizeOf(e *eventlog.Entry) int {
	v := &e.Event
	return overhead + len(v.Target) + len(v.Type) + len(v.Payload) + len(v.Key) + len(v.Idem) + len(v.Trace)
}
