package redislog

import (
	"context"
	"sync"
	"time"

	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

const (
	// mostRounds is how many round trips for appends may be under way. While
	// one is, what arrives gathers for the next; a second one keeps the server
	// busy while we read the first one's answers. Measured on two cores with
	// 32 publishers: see BenchmarkAppend.
	mostRounds = 2
	// roundCommands ends the gathering of a round: whoever is in it waits for
	// all of it.
	roundCommands = 512
)

// A combiner puts appends that come together into one round trip: they share
// the system calls of both ends, which cost more than storing an event does.
// Nobody waits on purpose: who finds no round under way begins one at once.
type combiner struct {
	node *node // set at construction

	// Guarded by mu.
	mu      sync.Mutex
	waiting []*pipe // nobody has sent these
	rounds  int     // under way
}

// submit hands a pipe over. It belongs to the combiner until done is closed.
func (c *combiner) submit(p *pipe) {
	p.began = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, p)
	// Not entered, the node is closed, which each caller notices by itself.
	if c.rounds < mostRounds && c.node.enter() {
		c.rounds++
		go c.run()
	}
}

// run sends rounds until nothing waits.
func (c *combiner) run() {
	defer c.node.calls.Done()
	for round := c.next(); len(round) > 0; round = c.next() {
		c.send(round)
	}
}

// next takes what waits, up to a bound. Having found nothing, it counts the
// round as ended in the same step: else a pipe could come in between, and wait
// for ever.
func (c *combiner) next() []*pipe {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, commands := 0, 0
	for n < len(c.waiting) && commands < roundCommands {
		commands += len(c.waiting[n].cmds)
		n++
	}
	round := c.waiting[:n:n]
	if c.waiting = c.waiting[n:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	if n == 0 {
		c.rounds--
	}
	return round
}

// send does one round trip. Who has given up already was told that nothing is
// claimed, and is left out.
func (c *combiner) send(round []*pipe) {
	var cmds []rueidis.Completed
	var until time.Time
	for _, p := range round {
		if p.err = p.ctx.Err(); p.err != nil {
			continue
		}
		if deadline, _ := p.ctx.Deadline(); deadline.After(until) {
			until = deadline
		}
		cmds = append(cmds, p.cmds...)
	}
	var replies []rueidis.RedisResult
	if len(cmds) > 0 {
		ctx, cancel := context.WithDeadline(c.node.base, until)
		replies = c.node.client.DoMulti(ctx, cmds...)
		cancel()
	}
	for _, p := range round {
		if p.err == nil {
			n := len(p.cmds)
			p.replies, replies = replies[:n:n], replies[n:]
		}
		close(p.done)
	}
}

// await returns a pipe's replies within ctx, and counts them.
func (c *combiner) await(ctx context.Context, p *pipe) (replies []rueidis.RedisResult, err error) {
	select {
	case <-p.done:
		if replies, err = p.replies, p.err; err != nil {
			err = unavailable(err)
		}
	case <-ctx.Done():
		err = unavailable(ctx.Err())
	case <-c.node.base.Done():
		return nil, eventlog.ErrClosed
	}
	c.node.metrics.observe(callAppend, time.Since(p.began), firstError(replies, err))
	return replies, err
}
