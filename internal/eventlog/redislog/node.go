package redislog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

const (
	// dialTimeout bounds the connection and, once more, the greeting after it.
	dialTimeout = 2 * time.Second
	// pingGap is after how much silence a connection is tested with a PING.
	pingGap = 2 * time.Second
)

// A node is one Redis server and our connections to it.
type node struct {
	// Set at construction.
	client   rueidis.Client // pipelines whatever has no connection of its own
	past     rueidis.Client // for the large replies of replay and sweeping; nil until openAppends
	option   rueidis.ClientOption
	target   target
	addr     string        // of target
	limit    time.Duration // of a call whose context has none
	replicas int           // that must have what is stored; 0: nobody waits for them
	patience time.Duration // with them
	metrics  *Metrics
	logger   *slog.Logger
	appends  *combiner       // nil until openAppends
	base     context.Context // ends when the node is closed; its cause is what calls are told
	stop     context.CancelCauseFunc

	complained sync.Once // that it takes no transactions
	fit        fitness

	// Guarded by mu.
	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // Add only under mu, so that none comes after Wait
}

// newNode makes the client, which connects when it is first used, and anew for
// each command while the server is away.
func newNode(t target, opts *Options) *node {
	n := &node{target: t, addr: t.addr, limit: opts.CallTimeout, replicas: opts.Replicas, patience: opts.replicaWait, metrics: opts.Metrics, logger: opts.Logger}
	n.base, n.stop = context.WithCancelCause(context.Background())
	n.option = rueidis.ClientOption{
		InitAddress: []string{t.addr},
		Username:    t.user,
		Password:    t.password,
		SelectDB:    t.db,
		TLSConfig:   t.tls,
		ClientName:  "downlink",
		// KeepAlive is the pause before a PING too, ConnWriteTimeout how long
		// it may take: together they end a connection to a frozen server.
		Dialer:           net.Dialer{Timeout: opts.dialTimeout, KeepAlive: pingGap},
		ConnWriteTimeout: opts.CallTimeout,
		// A write that is repeated after a lost answer may be stored twice;
		// and whoever waits for a read would rather be told.
		DisableRetry: true,
		DisableCache: true,
		// The reader in the background notices a lost connection at once
		// instead of at the next command.
		AlwaysPipelining:    true,
		ForceSingleClient:   true,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
		ReadBufferEachConn:  128 << 10,
		WriteBufferEachConn: 64 << 10,
	}
	n.client = lazyClient(n.option)
	return n
}

// lazyClient makes a client that connects when it is first used: whoever makes
// a node must not wait for its server.
func lazyClient(o rueidis.ClientOption) rueidis.Client {
	var made atomic.Bool
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (net.Conn, error) {
		if !made.Load() {
			return nil, errNotAsked
		}
		return dialAs(ctx, addr, d, secure)
	}
	client := newClient(o)
	made.Store(true)
	return client
}

// newClient makes a client whose first attempt to connect fails.
func newClient(o rueidis.ClientOption) rueidis.Client {
	client, err := rueidis.NewClient(o)
	if client == nil { // only for options that we don't set
		panic(fmt.Sprintf("making a Redis client: %v", err))
	}
	return client
}

// dialAs makes a connection as the client would.
func dialAs(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (net.Conn, error) {
	if secure != nil {
		return (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// openAppends makes the node one that holds a part of the log. Call it before
// the node is used.
func (n *node) openAppends() {
	past := n.option
	past.PipelineMultiplex = -1 // one connection
	n.past = lazyClient(past)
	o := n.option
	// Nothing pings that connection, so this alone has to end a round trip to a
	// frozen server, after the same time.
	o.ConnWriteTimeout += pingGap
	n.appends = newCombiner(n, newWriter(n.base, o))
}

// close ends all calls and connections, tells callers the cause, and returns
// when they have ended.
func (n *node) close(cause error) {
	n.stop(cause)
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	if n.appends != nil {
		n.appends.writer.close()
	}
	n.closeClients()
	n.calls.Wait()
	if n.appends != nil {
		n.appends.close()
	}
	// A connection that was being made during the first Close survives it.
	n.closeClients()
}

func (n *node) closeClients() {
	n.client.Close()
	if n.past != nil {
		n.past.Close()
	}
}

// by is the client for a kind of call. Replies come in order over a connection:
// an order or a lease would wait for the pages that were asked for before it.
func (n *node) by(call callName) rueidis.Client {
	if n.past != nil && (call == callRange || call == callSweep) {
		return n.past
	}
	return n.client
}

// cause is why the node was closed.
func (n *node) cause() error { return context.Cause(n.base) }

// bounded is ctx with the node's limit, if it has none.
func (n *node) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, n.limit)
}

func (n *node) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.calls.Add(1)
	return true
}

// run makes a call that answers within ctx, or within the node's limit if ctx
// has none. The client alone doesn't promise that: a command that waits for
// another one's connection attempt, or for a place in a full pipeline, doesn't
// look at its context. What the caller no longer waits for ends by itself, by
// the same deadline; follow says that it should end when ctx does.
func run[T any](ctx context.Context, n *node, follow bool, call func(context.Context) T) (T, error) {
	var none T
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(n.limit)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if ctx.Err() != nil {
		return none, unavailable(ctx.Err())
	}
	if !n.enter() {
		return none, n.cause()
	}
	work, end := context.WithDeadline(n.base, deadline)
	unfollow := func() bool { return true }
	if follow {
		unfollow = context.AfterFunc(ctx, end)
	}
	answer := make(chan T, 1)
	go func() {
		defer n.calls.Done()
		defer end()
		answer <- call(work)
	}()
	select {
	case a := <-answer:
		unfollow()
		return a, nil
	case <-ctx.Done():
		return none, unavailable(ctx.Err())
	case <-n.base.Done():
		return none, n.cause()
	}
}

// do sends one command that looks at the server itself.
func (n *node) do(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisMessage, error) {
	results, err := n.doMulti(ctx, callCheck, cmd)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	m, err := results[0].ToMessage()
	return m, n.translate(err)
}

// doMulti sends commands in one pipeline. An error concerns all of them; the
// errors in the results are for the caller to translate.
func (n *node) doMulti(ctx context.Context, call callName, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	began := time.Now()
	results, err := run(ctx, n, false, func(ctx context.Context) []rueidis.RedisResult {
		return n.by(call).DoMulti(ctx, cmds...)
	})
	n.metrics.observe(call, time.Since(began), firstError(results, err))
	return results, err
}

// firstError is what the metrics count: a nil reply and a script that the
// server doesn't know yet are answers, not failures.
func firstError(results []rueidis.RedisResult, err error) error {
	if err != nil {
		return err
	}
	for i := range results {
		if err := results[i].Error(); err != nil && !rueidis.IsRedisNil(err) && !noScript(err) {
			return err
		}
	}
	return nil
}

// translate turns the client's error into one of the contract's.
func (n *node) translate(err error) error {
	if err == nil {
		return nil
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return translateReply(reply.Error())
	}
	if n.base.Err() != nil { // our own end is what broke it
		return n.cause()
	}
	if errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrClosed) {
		return err // translated already
	}
	return unavailable(fmt.Errorf("Redis at %s: %w", n.addr, err))
}
