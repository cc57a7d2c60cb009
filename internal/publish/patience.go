package publish

import (
	"context"
	"sync/atomic"
	"time"
)

// A patience gives requests that come together one context with a time limit:
// a timer for each of them would cost as much as reading it. The context isn't
// a request's, so a client that goes away undoes nothing: half of a broadcast
// would be worse than all of it. Safe for concurrent use.
type patience struct {
	limit  time.Duration // set at construction
	shared atomic.Pointer[sharedContext]
}

type sharedContext struct {
	context.Context
	cancel context.CancelFunc
	until  time.Time // for whoever comes before
}

// context ends after the limit, or up to a 64th of it later.
func (p *patience) context() context.Context {
	now := time.Now()
	if c := p.shared.Load(); c != nil && now.Before(c.until) {
		return c.Context
	}
	c := &sharedContext{until: now.Add(p.limit / 64)}
	// It is never cancelled: whoever has it may use all of its time.
	c.Context, c.cancel = context.WithDeadline(context.Background(), c.until.Add(p.limit))
	p.shared.Store(c)
	return c.Context
}
