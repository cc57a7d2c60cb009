package redislog

import (
	"context"
	"strconv"
	"sync"

	"downlink/internal/event"
)

// pruneScan is how many notes one step looks at, about.
const pruneScan = 1000

// A pruner walks over a shard's notes and then over its positions, and drops
// the old ones, a step a sweep. The record says up to which ID; how far this
// gateway's walk has come is only here: another gateway, or this one after a
// restart, begins anew.
type pruner struct {
	mu        sync.Mutex
	bound     event.ID
	positions bool   // the notes are done
	cursor    uint64 // of HSCAN
}

// step reports how many notes were dropped and whether the walk goes on.
func (p *pruner) step(ctx context.Context, s *shard, bound event.ID) (notes int, more bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bound != bound {
		p.bound, p.positions, p.cursor = bound, false, 0
	}
	key, order := s.notes, 0
	if p.positions {
		key, order = s.positions, -1 // a position at the bound itself is served still
	}
	n, next, err := p.drop(ctx, s, key, order)
	if err != nil {
		return 0, false, err
	}
	if p.cursor = next; p.positions {
		return 0, next != 0, nil
	}
	p.positions = next == 0
	return n, true, nil
}

// drop looks at some fields of a hash and has the script drop those whose order
// to the bound is at most the given one. It returns where to go on; 0: nowhere.
func (p *pruner) drop(ctx context.Context, s *shard, key string, order int) (n int, next uint64, err error) {
	b := s.home.b()
	reply, err := s.home.do(ctx, callSweep, b.Hscan().Key(key).Cursor(p.cursor).Count(pruneScan).Build())
	if err != nil {
		return 0, 0, err
	}
	scan, err := reply.AsScanEntry()
	if err != nil {
		return 0, 0, oddReply(err)
	}
	last := "0"
	if p.positions && scan.Cursor == 0 {
		last = "1"
	}
	args := []string{"", p.bound.String(), last, strconv.Itoa(order)}
	for i := 0; i+1 < len(scan.Elements); i += 2 {
		// The field without a name is no target's.
		if target := scan.Elements[i]; target != "" && old(scan.Elements[i+1], p.bound, order) {
			args = append(args, target)
		}
	}
	reply, err = s.home.eval(ctx, callSweep, pruneScript, []string{s.record, key}, args)
	if err != nil {
		return 0, 0, err
	}
	dropped, err := reply.AsInt64()
	if err != nil {
		return 0, 0, oddReply(err)
	}
	return int(dropped), scan.Cursor, nil
}

// old reports whether an ID's order to the bound is at most the given one. The
// script looks again.
func old(text string, bound event.ID, order int) bool {
	id, err := event.ParseID(text)
	return err == nil && id.Compare(bound) <= order
}
