package redislog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// How large the reply to one Read may be, in bytes; one entry more may be in it.
// A reply that didn't come in time halves it, so that a slow line or a loaded
// server is asked for less each time instead of for the same again; one that
// came doubles it.
const (
	leastBudget = 64 << 10
	mostBudget  = 8 << 20
)

// nearEnd is how long ago a read may have begun that left nothing unread, for
// the next one to take whatever came since. XREAD takes an entry of each stream
// at least, however large: over 50 ms that is no more than a server takes in.
const nearEnd = 50 * time.Millisecond

// A tail is the connection on which one group's blocking reads wait. Nothing
// else may use it: Redis answers no other command on it meanwhile.
type tail struct {
	// Set at construction.
	block time.Duration // how long the server waits
	limit time.Duration // how long we do: a frozen server doesn't keep its own limit
	brief time.Duration // how long we do when the server has nothing to wait for
	sizes *sizer
	// maxPayload: events over it are read as FaultTooLarge; 0 means no limit. It is
	// asked when a reply is there: it may have been raised, and an event stored
	// under it, while the read was blocked.
	maxPayload func() int

	asked asked
	*wire

	standin *standin

	// For one read at a time.
	last  origin    // where the last read was, if it didn't fail
	ended time.Time // when the last one began that left nothing unread
	first int       // the place of the stream at which the next page begins
}

// An origin is who is read: the server at a seat, or a replica of it.
type origin struct {
	seat *seat
	node *node
}

func (o origin) replica() bool { return o.node != o.seat.node }

// asked is the positions of the last read, as text: most of them stay as they
// are from one to the next. For one read at a time.
type asked struct {
	positions []event.ID
	texts     []string
}

func newAsked(places int) asked {
	return asked{positions: make([]event.ID, places), texts: make([]string, places)}
}

// at gives the text of the position of the shard at a place.
func (a *asked) at(place int, id event.ID) string {
	if a.texts[place] == "" || a.positions[place] != id {
		a.positions[place], a.texts[place] = id, id.String()
	}
	return a.texts[place]
}

// all gives the text of each position.
func (a *asked) all(positions []event.ID) []string {
	for i, id := range positions {
		a.at(i, id)
	}
	return a.texts
}

// A wire is the connection itself, guarded by mu: a Read that nobody waits for
// any more may still be ending when the next one begins.
type wire struct {
	mu      sync.Mutex
	node    *node                   // to whom it is
	client  rueidis.DedicatedClient // nil: connect first
	release func()

	budget atomic.Int64
}

func newTail(opts *Options) tail {
	t := tail{block: opts.BlockTime, limit: opts.BlockTime + opts.CallTimeout, brief: opts.CallTimeout, sizes: newSizer(),
		maxPayload: opts.MaxEventBytes, wire: new(wire), standin: &standin{wanted: opts.ReadReplica}}
	t.budget.Store(mostBudget)
	return t
}

// do runs one command within a limit and gives the connection up if it fails.
// It returns the client's errors.
func (t *tail) do(ctx context.Context, from origin, limit time.Duration, cmd rueidis.Completed) (rueidis.RedisMessage, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(from.seat.left, cancel)()
	t.standin.begin(cancel)
	began := time.Now()
	results, err := run(bounded, from.node, true, func(work context.Context) []rueidis.RedisResult {
		return t.wire.do(work, from, cmd)
	})
	if err == nil {
		err = results[0].Error()
	}
	if from.replica() && (err == nil || rueidis.IsRedisNil(err)) {
		if lost := t.standin.follows(results[1]); lost != nil {
			err = lost
		}
	}
	switch {
	case ctx.Err() != nil:
		return rueidis.RedisMessage{}, unavailable(ctx.Err())
	case err == nil || rueidis.IsRedisNil(err):
		t.budget.Store(min(2*t.budget.Load(), mostBudget))
		m, _ := results[0].ToMessage()
		return m, err
	case noScript(err):
		return rueidis.RedisMessage{}, err
	case from.node.base.Err() != nil: // which may have ended the call's own context first
		return rueidis.RedisMessage{}, from.node.cause()
	case from.seat.left.Err() != nil:
		return rueidis.RedisMessage{}, unavailable(errMoved)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.budget.Store(max(t.budget.Load()/2, leastBudget))
	}
	from.node.metrics.observe(callRead, time.Since(began), err)
	return rueidis.RedisMessage{}, err
}

// translate is an error of the contract.
func (t *tail) translate(n *node, err error) error {
	if errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrClosed) {
		return err
	}
	return n.translate(err)
}

// do sends a read and, behind one from a replica, the question whom it follows.
func (w *wire) do(ctx context.Context, from origin, cmd rueidis.Completed) []rueidis.RedisResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := from.node
	if err := ctx.Err(); err != nil {
		return []rueidis.RedisResult{rueidis.NewErrorResult(err)}
	}
	if w.node != n {
		w.dropLocked()
	}
	if w.client == nil {
		w.client, w.release = n.client.Dedicate()
		w.node = n
		n.metrics.dials.Inc()
		if from.replica() {
			// In a cluster it would send us to its primary; elsewhere it refuses.
			_ = w.client.Do(ctx, w.client.B().Readonly().Build()).Error()
		}
	}
	cmds := []rueidis.Completed{cmd}
	if from.replica() {
		cmds = append(cmds, w.client.B().Info().Section("replication").Build())
	}
	results := w.client.DoMulti(ctx, cmds...)
	// After an error nobody knows which reply comes next on this connection.
	if results[0].NonRedisError() != nil || n.base.Err() != nil {
		w.dropLocked()
	}
	return results
}

func (w *wire) dropLocked() {
	if w.client == nil {
		return
	}
	w.client.Close()
	w.release()
	w.client = nil
}
