package sweep

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// due is a log in which each shard needs some steps.
type due struct {
	mu    sync.Mutex
	steps map[int]int // left in each shard
	calls map[int]int
	err   error
}

func (d *due) Shards() int { return len(d.steps) }

func (d *due) Sweep(_ context.Context, shard int, _ eventlog.Recent) (eventlog.SweepReport, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[shard]++
	if d.err != nil {
		return eventlog.SweepReport{}, d.err
	}
	if d.steps[shard] == 0 {
		return eventlog.SweepReport{}, nil
	}
	d.steps[shard]--
	return eventlog.SweepReport{Removed: 10, More: d.steps[shard] > 0, Foreign: 1, Pruned: 2}, nil
}

func TestEveryShardIsSweptToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &due{steps: map[int]int{0: 3, 1: 0, 2: 1}, calls: map[int]int{}, err: errors.New("away")}
		m := NewMetrics(nil)
		s := New(log, Options{Interval: time.Second, Metrics: m, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time
		log.mu.Lock()
		log.err = nil
		log.mu.Unlock()
		time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for shard, left := range log.steps {
			if left != 0 || log.calls[shard] == 0 {
				t.Errorf("shard %d: %d steps left after %d calls", shard, left, log.calls[shard])
			}
		}
		for name, c := range map[string]struct{ got, want float64 }{
			"removed": {testutil.ToFloat64(m.Removed), 40},
			"foreign": {testutil.ToFloat64(m.Foreign), 4},
			"pruned":  {testutil.ToFloat64(m.Pruned), 8},
		} {
			if c.got != c.want {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
		if testutil.ToFloat64(m.Failures) < 2 {
			t.Error("failures aren't counted")
		}
	})
}
