package redislog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// roundCommands ends the gathering of a round: whoever is in it waits for all
// of it.
const roundCommands = 512

// A combiner puts appends that come together into one round trip: they share
// the system calls of both ends, which cost more than storing an event does.
// Nobody waits on purpose: who finds no round under way does one at once, by
// itself; what comes meanwhile gathers for the next.
type combiner struct {
	// Set at construction.
	node   *node
	writer *writer
	begin  chan struct{} // rounds are to be done; closed when there will be none
	ended  chan struct{} // closed when serve has returned

	// Guarded by mu.
	mu      sync.Mutex
	waiting []*pipe // nobody has sent these
	busy    bool    // a round is under way, or about to begin
	leading *pipe   // whose caller does the round; nil if serve does
}

func newCombiner(n *node, w *writer) *combiner {
	c := &combiner{node: n, writer: w, begin: make(chan struct{}), ended: make(chan struct{})}
	go c.serve()
	return c
}

// close ends serve, once no round is under way nor will be.
func (c *combiner) close() {
	close(c.begin)
	<-c.ended
}

// submit hands a pipe over. It belongs to the combiner until done is closed;
// without done it has been sent already. alone says that its caller has nothing
// else to send.
func (c *combiner) submit(p *pipe, alone bool) {
	p.began = time.Now()
	c.mu.Lock()
	free := !c.busy && c.node.enter() // not entered, it is closed: await notices
	if c.busy = c.busy || free; !free || !alone {
		p.done = make(chan struct{})
		c.waiting = append(c.waiting, p)
		c.mu.Unlock()
		if free {
			c.begin <- struct{}{}
		}
		return
	}
	c.leading = p
	c.mu.Unlock()
	c.lead(p)
	c.mu.Lock()
	c.leading = nil
	more := len(c.waiting) > 0
	c.busy = more
	c.mu.Unlock()
	if more {
		c.begin <- struct{}{} // has entered with us
		return
	}
	c.node.calls.Done()
}

// lead does a round with one pipe, in the goroutine of its caller.
func (c *combiner) lead(p *pipe) {
	unfollow := context.AfterFunc(p.ctx, func() { c.abandon(p) })
	defer unfollow()
	if p.err = p.ctx.Err(); p.err == nil {
		p.replies = c.round(p.ctx, p.cmds, p)
	}
}

// abandon ends the round of a caller that can't wait any longer.
func (c *combiner) abandon(p *pipe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading == p {
		c.writer.cut()
	}
}

// serve does rounds whenever several appends wait. One goroutine does all of
// them: a new one each time would have to grow its stack each time.
func (c *combiner) serve() {
	defer close(c.ended)
	for range c.begin {
		for round := c.next(); len(round) > 0; round = c.next() {
			c.send(round)
		}
		c.node.calls.Done()
	}
}

// next takes what waits, up to a bound. Having found nothing, it ends the
// rounds in the same step: else a pipe could come in between, and wait for
// ever.
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
	c.busy = n > 0
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
		if cmds == nil {
			cmds = slices.Clip(p.cmds)
			continue
		}
		cmds = append(cmds, p.cmds...)
	}
	var replies []rueidis.RedisResult
	if len(cmds) > 0 {
		ctx, cancel := context.WithDeadline(c.node.base, until)
		replies = c.round(ctx, cmds, round...)
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

// round does one round trip for these pipes, and reads along what the tail
// wants to see of their shards.
func (c *combiner) round(ctx context.Context, cmds []rueidis.Completed, pipes ...*pipe) []rueidis.RedisResult {
	looks, n := c.look(pipes), len(cmds)
	if len(looks) == 0 && c.node.replicas == 0 {
		replies := c.writer.do(ctx, cmds)
		c.over(pipes)
		return replies
	}
	cmds = slices.Clip(cmds)
	for i := range looks {
		cmds = append(cmds, looks[i].cmd)
	}
	if c.node.replicas > 0 {
		cmds = append(cmds, c.node.wait(ctx)) // one for all
	}
	replies := c.writer.do(ctx, cmds)
	conn := c.over(pipes)
	if c.node.replicas > 0 && replicasOf(replies[len(cmds)-1]) < c.node.replicas {
		for _, p := range pipes {
			p.lacking = true
		}
	}
	whole := stored(replies[:n])
	for i := range looks {
		if whole {
			looks[i].hand(replies[n+i], conn)
		}
		looks[i].group.along.mu.Unlock()
	}
	return replies[:n:n]
}

// over notes over which connection a round has gone.
func (c *combiner) over(pipes []*pipe) link {
	conn := link{c.node, c.writer.made()}
	for _, p := range pipes {
		p.conn = conn
	}
	return conn
}

// await returns the replies to a pipe's takes within ctx, and counts them.
func (c *combiner) await(ctx context.Context, p *pipe) (replies []rueidis.RedisResult, err error) {
	if err = p.wait(ctx); err == nil {
		replies = p.unpack()
	}
	if !errors.Is(err, eventlog.ErrClosed) {
		c.node.metrics.observe(callAppend, time.Since(p.began), firstError(replies, err))
	}
	return replies, err
}

// wait returns nil once there are replies.
func (p *pipe) wait(ctx context.Context) error {
	if p.done != nil {
		select {
		case <-p.done:
		case <-ctx.Done():
			return unavailable(ctx.Err())
		case <-p.node.base.Done():
			return p.node.cause()
		}
	}
	if p.err != nil {
		return unavailable(p.err)
	}
	return nil
}
