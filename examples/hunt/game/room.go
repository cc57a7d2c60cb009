package game

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"
)

// An Allowance is how much the governor lets in at the moment.
type Allowance struct {
	Ratio   float64 // of what could be, 0 to 1
	Maximum int     // how many that is; 0: it didn't say
	Signal  string  // what has lowered it; empty at ratio 1
}

// A room is who plays, and who may join. Safe for concurrent use.
type room struct {
	// Set at construction.
	ask       func() Allowance // nil: everybody may join
	players   int
	activeFor time.Duration
	store     *store
	metrics   *metrics
	logger    *slog.Logger

	counted atomic.Int64 // who played at the last count
	joined  atomic.Int64 // since then
}

// playing is how many play, about.
func (r *room) playing() int64 { return r.counted.Load() + r.joined.Load() }

// admit reports whether one more may join; if not, by which signal.
func (r *room) admit() (signal string, ok bool) {
	if r.ask == nil {
		return "", true
	}
	start := time.Now()
	signal, limit := r.look()
	r.metrics.ask.Observe(time.Since(start).Seconds())
	return signal, float64(r.playing()) < limit
}

// look is what the governor says, and how many may play by it.
func (r *room) look() (signal string, limit float64) {
	a := r.ask()
	limit = r.limit(a)
	r.metrics.ratio.Set(a.Ratio)
	r.metrics.room.Set(limit)
	return a.Signal, limit
}

// limit is how many may play. At ratio 1 that is for the gateways to say.
func (r *room) limit(a Allowance) float64 {
	switch {
	case a.Ratio >= 1:
		return math.Inf(1)
	case a.Maximum > 0:
		return float64(a.Maximum)
	case r.players > 0:
		return math.Floor(a.Ratio * float64(r.players))
	}
	return 0 // nobody said how many that would be: nobody new until it is over
}

// entered notes that somebody has joined.
func (r *room) entered() { r.joined.Add(1) }

// countEvery is how often the room is counted.
const countEvery = time.Second

// run counts who plays and shows how many may, until ctx ends. While Redis can't be
// asked the last count stands.
func (r *room) run(ctx context.Context) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for failed := false; ; {
		if r.ask != nil {
			r.look()
		}
		err := r.count(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			r.logger.Warn("players can't be counted; the last count stands", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *room) count(ctx context.Context) error {
	since := r.joined.Load() // whoever joins meanwhile may be counted twice for a second: better than not at all
	playing, joined, err := r.store.census(ctx, time.Now().Add(-r.activeFor))
	if err != nil {
		return err
	}
	r.counted.Store(playing)
	r.joined.Add(-since)
	r.metrics.playing.Set(float64(playing))
	r.metrics.players.Set(float64(joined))
	return nil
}
