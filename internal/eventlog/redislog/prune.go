package redislog

import (
	"context"
	"sync"

	"downlink/internal/event"
)

// pruneScan is how many notes one step looks at, about.
const pruneScan = 1000

// A pruner walks over a shard's notes and drops the old ones, a step a sweep.
// The record says up to which ID; how far this gateway's walk has come is only
// here: another gateway, or this one after a restart, begins anew.
type pruner struct {
	mu     sync.Mutex
	bound  event.ID
	cursor uint64 // of HSCAN
}

// step reports how many notes were dropped and whether the walk goes on.
func (p *pruner) step(ctx context.Context, s *shard, bound event.ID) (dropped int, more bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bound != bound {
		p.bound, p.cursor = bound, 0
	}
	b := s.home.b()
	reply, err := s.home.do(ctx, callSweep, b.Hscan().Key(s.notes).Cursor(p.cursor).Count(pruneScan).Build())
	if err != nil {
		return 0, false, err
	}
	scan, err := reply.AsScanEntry()
	if err != nil {
		return 0, false, oddReply(err)
	}
	last := "0"
	if scan.Cursor == 0 {
		last = "1"
	}
	args := []string{"", bound.String(), last}
	for i := 0; i+1 < len(scan.Elements); i += 2 {
		// The field without a name is how the notes show that they are whole.
		if target := scan.Elements[i]; target != "" && old(scan.Elements[i+1], bound) {
			args = append(args, target)
		}
	}
	reply, err = s.home.eval(ctx, callSweep, pruneScript, []string{s.record, s.notes}, args)
	if err != nil {
		return 0, false, err
	}
	n, err := reply.AsInt64()
	if err != nil {
		return 0, false, oddReply(err)
	}
	p.cursor = scan.Cursor
	return int(n), scan.Cursor != 0, nil
}

// old reports whether a note is not above the bound. The script looks again.
func old(note string, bound event.ID) bool {
	id, err := event.ParseID(note)
	return err == nil && id.Compare(bound) <= 0
}
