package redislog

import (
	"context"
	"sync/atomic"
	"time"
)

// fitEvery is how often a server is asked again what Open asked it.
const fitEvery = 30 * time.Second

// A fitness is what was last seen of a server.
type fitness struct {
	at    atomic.Int64           // Unix nanoseconds; 0: never
	unfit atomic.Pointer[string] // why a gateway would not start with it; nil: it would
}

// watchServer asks a server from time to time whether a gateway would start with it: somebody
// changes a setting while it runs, or a failover brings one that has others. The log goes
// on as well as it can, and says so. It fails in silence: who calls it has just had an
// answer of the server, and the next call that matters will tell.
func (l *Log) watchServer(ctx context.Context, n *node) {
	last := n.fit.at.Load()
	if now := time.Now().UnixNano(); now-last < int64(fitEvery) || !n.fit.at.CompareAndSwap(last, now) {
		return
	}
	info, err := askInfo(ctx, n)
	if err != nil {
		return
	}
	var why *string
	if err := unfit(n.addr, info, &l.opts, l.place.form); err != nil {
		text := err.Error()
		why = &text
	}
	switch before := n.fit.unfit.Swap(why); {
	case why != nil && (before == nil || *before != *why):
		l.opts.Logger.Error("no gateway would start with this Redis any more; those that run go on", "error", *why)
	case why == nil && before != nil:
		l.opts.Logger.Warn("this Redis is as it must be again", "server", n.addr)
	}
	l.opts.Metrics.unfit.Set(float64(l.unfitServers()))
}

// unfitServers counts those that serve a part of the log now.
func (l *Log) unfitServers() int {
	found := make(map[*node]bool)
	for _, h := range l.atlas.homes {
		if n := h.node(); n.fit.unfit.Load() != nil {
			found[n] = true
		}
	}
	return len(found)
}
