package dial

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"downlink/internal/lease"
)

// What ends a write before it is done.
var (
	errLapsed  = errors.New("the lease of the shard has lapsed")
	errStalled = errors.New("the device took nothing for write_timeout")
)

// Headers by which a device knows who comes (docs/protocol.md).
const (
	deviceHeader     = "Downlink-Device"
	memberHeader     = "Downlink-Member"
	generationHeader = "Downlink-Generation"
)

// greeting is what a device is told of who comes. Without a generation there may
// be others beside us.
func (e *Engine) greeting(l lease.Lease) http.Header {
	h := make(http.Header, 3)
	if e.opts.Member != "" {
		h.Set(memberHeader, e.opts.Member)
	}
	if l.Generation > 0 {
		h.Set(generationHeader, strconv.FormatUint(l.Generation, 10))
	}
	return h
}

// A guard ends a context when a lease does that isn't renewed, or at a limit.
type guard struct {
	holding *holding
	ctx     context.Context
	cancel  context.CancelCauseFunc
	limit   time.Time // zero: none
	lease   lease.Lease
	timer   *time.Timer
}

// guard is a context for a write by a lease: it ends with the lease, unless that
// is renewed, and after limit (0: never). stop frees it, or ends it early.
func (h *holding) guard(parent context.Context, l lease.Lease, limit time.Duration) (ctx context.Context, stop context.CancelFunc) {
	g := &guard{holding: h, lease: l}
	g.ctx, g.cancel = context.WithCancelCause(parent)
	now := time.Now()
	if limit > 0 {
		g.limit = now.Add(limit)
	}
	g.timer = time.AfterFunc(math.MaxInt64, g.look) // a look needs the timer: it begins with the next line
	g.timer.Reset(g.left(now))
	return g.ctx, func() {
		g.timer.Stop()
		g.cancel(nil)
	}
}

// left is for how long nothing needs looking at.
func (g *guard) left(now time.Time) time.Duration {
	left := time.Duration(math.MaxInt64)
	if !g.limit.IsZero() {
		left = g.limit.Sub(now)
	}
	if !g.lease.Deadline.IsZero() {
		left = min(left, g.lease.Deadline.Sub(now))
	}
	return max(left, time.Millisecond)
}

// look ends the context if its time has come.
func (g *guard) look() {
	if g.ctx.Err() != nil {
		return // stopped meanwhile
	}
	now := time.Now()
	if !g.limit.IsZero() && !now.Before(g.limit) {
		g.cancel(errStalled)
		return
	}
	if !g.lease.Live(now) {
		l, live := g.holding.lease()
		if !live {
			g.cancel(errLapsed)
			return
		}
		g.lease = l
	}
	g.timer.Reset(g.left(now))
}
