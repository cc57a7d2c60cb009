package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
)

// watched are the servers of Redis behind a URL, which may have to be found first.
// Safe for concurrent use.
type watched struct {
	found atomic.Pointer[redislog.Servers]
	why   atomic.Pointer[error] // why they aren't found yet
}

var errNotYet = errors.New("Redis has not been looked for yet")

// Loads implements probes.Servers.
func (w *watched) Loads(ctx context.Context) []redislog.Load {
	if s := w.found.Load(); s != nil {
		return s.Loads(ctx)
	}
	err := errNotYet
	if why := w.why.Load(); why != nil {
		err = *why
	}
	return []redislog.Load{{Err: err}}
}

// find looks for the servers until ctx ends, and calls looked after each attempt. The
// error says that it is useless.
func (w *watched) find(ctx context.Context, o redislog.Options, looked func(), logger *slog.Logger) error {
	retry := backoff.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}
	said := ""
	for attempt := 0; ; attempt++ {
		s, err := redislog.OpenServers(ctx, o)
		switch {
		case err == nil:
			w.found.Store(s)
			return nil
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, eventlog.ErrUnavailable):
			return fmt.Errorf("Redis can't be watched: %w", err)
		case said != err.Error():
			said = err.Error()
			logger.Warn("the servers of Redis can't be found yet; trying on", "error", err)
		}
		w.why.Store(&err)
		looked()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry.Delay(attempt)):
		}
	}
}

func (w *watched) close() error {
	if s := w.found.Load(); s != nil {
		return s.Close()
	}
	return nil
}
