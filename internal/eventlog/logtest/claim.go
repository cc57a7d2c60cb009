package logtest

import (
	"sync"
	"sync/atomic"
	"time"
)

func claimCases() []testCase {
	return []testCase{
		{name: "the first caller wins", run: claimFirst},
		{name: "of many at once one wins", run: claimConcurrent},
		{name: "free again after its time", opts: Options{Window: shortWindow}, run: claimExpires},
		{name: "survives a restart", run: claimReopen},
	}
}

func (r *rig) claim(shard int, name string, ttl time.Duration) bool {
	r.Helper()
	first, err := r.Log.Claim(r.ctx, shard, name, ttl)
	if err != nil {
		r.Fatalf("Claim: %v", err)
	}
	return first
}

func claimFirst(r *rig) {
	for _, name := range []string{"", "a", "a\x00b", "line\nbreak", string(make([]byte, 1<<16))} {
		for shard := range 2 {
			for round := range 3 {
				if first := r.claim(shard, name, time.Hour); first != (round == 0) {
					r.Errorf("call %d for a name of %d bytes in shard %d: first is %v", round, len(name), shard, first)
				}
			}
		}
	}
	if _, err := r.Log.Claim(r.ctx, 0, "x", time.Microsecond); err == nil {
		r.Error("a claim for a microsecond was taken")
	}
	if _, err := r.Log.Claim(r.ctx, r.opts.Shards, "x", time.Hour); err == nil {
		r.Error("a claim in a shard that isn't there was taken")
	}
}

func claimConcurrent(r *rig) {
	var wg sync.WaitGroup
	var wins atomic.Int32
	for range 24 {
		wg.Go(func() {
			if first, err := r.Log.Claim(r.ctx, 0, "ticket", time.Hour); err != nil {
				r.Errorf("Claim: %v", err)
			} else if first {
				wins.Add(1)
			}
		})
	}
	wg.Wait()
	if n := wins.Load(); n != 1 {
		r.Errorf("%d callers won, want 1", n)
	}
}

// claimExpires: sweeping may come at any time; it must not free a name early.
func claimExpires(r *rig) {
	const ttl = shortWindow
	began := time.Now()
	if !r.claim(0, "ticket", ttl) {
		r.Fatal("a new name is taken")
	}
	r.claim(0, "another", time.Hour)
	r.eventually("the name is free again", func() bool {
		r.sweep(0)
		return r.claim(0, "ticket", time.Hour)
	})
	if took := time.Since(began); r.Advance == nil && took < ttl {
		r.Errorf("the name was free after %v, before its time of %v", took, ttl)
	}
	if r.claim(0, "ticket", ttl) || r.claim(0, "another", ttl) {
		r.Error("a name that is taken was given away")
	}
}

func claimReopen(r *rig) {
	if r.Reopen == nil {
		r.Skip("this log can't be reopened by the harness")
	}
	r.claim(0, "ticket", time.Hour)
	r.Log = r.Reopen()
	if r.claim(0, "ticket", time.Hour) {
		r.Error("after a restart the name was given away again")
	}
}
