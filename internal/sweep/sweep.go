// Package sweep owns the rhythm of sweeping: which shard, when, and how much at
// a time. What is removed, and what is noted of it, is the log's own affair.
// Its invariant: a sweep is never in a hurry; what it doesn't get done now,
// any gateway does later.
package sweep

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/eventlog"
)

// Log is what can be swept.
type Log interface {
	eventlog.Sweeper
	Shards() int
}

// Options for a Sweeper.
type Options struct {
	Interval time.Duration // between two passes over all shards, jittered
	Recent   eventlog.Recent
	Metrics  *Metrics
	Logger   *slog.Logger
}

// A Sweeper removes what has left the window, shard by shard.
type Sweeper struct {
	log  Log
	opts Options
}

// New makes the sweeper of a log.
func New(log Log, opts Options) *Sweeper { return &Sweeper{log, opts} }

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff.Jitter(s.opts.Interval, 0.3)):
		}
		err := s.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.opts.Metrics.Failures.Inc()
			if !failing {
				s.opts.Logger.Warn("sweeping failed; it is tried again at each interval", "error", err)
			}
		case failing:
			s.opts.Logger.Warn("sweeping works again")
		}
		failing = err != nil
	}
}

// pass sweeps every shard once, in random order, so that several gateways
// seldom meet.
func (s *Sweeper) pass(ctx context.Context) error {
	for _, shard := range rand.Perm(s.log.Shards()) {
		if err := s.shard(ctx, shard); err != nil {
			return err
		}
	}
	return nil
}

// shard takes steps until nothing more is due.
func (s *Sweeper) shard(ctx context.Context, shard int) error {
	for {
		report, err := s.log.Sweep(ctx, shard, s.opts.Recent)
		if err != nil {
			return err
		}
		s.opts.Metrics.add(report)
		if report.Foreign > 0 {
			s.opts.Logger.Warn("entries were removed by somebody else than the sweep; older cursors of the shard will resync",
				"shard", shard, "entries", report.Foreign)
		}
		if !report.More {
			return nil
		}
	}
}
