package redislog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

const (
	// replicaPatience is how long a replica may stay behind the primary while
	// there is something to be read.
	replicaPatience = 2 * time.Second
	// replicaRest is how long the primary is read then, and whenever no replica
	// follows.
	replicaRest = 10 * time.Second
)

var errNotFollowing = errors.New("the replica doesn't follow the primary; reading the primary")

// A standin is the replica that a group's tail reads, if it is to read one.
// Only one that follows the very primary that is asked for everything else
// counts: by the replication ID, which another past would not have.
type standin struct {
	wanted bool // set at construction

	// Guarded by mu.
	mu     sync.Mutex
	node   *node // nil: read the primary
	seat   *seat // whose replica it is
	replid string
	chosen bool               // one is being chosen
	avoid  time.Time          // read the primary until then
	cut    context.CancelFunc // ends the read under way
	at     []event.ID         // where the reader was when it was last looked at
	since  time.Time          // and since when
}

// source is who is to be read: a replica of the seat's server, or that itself
// until one was chosen. A replica that doesn't answer holds nobody up.
func (g *group) source(s *seat) *node {
	r := g.tail.standin
	if !r.wanted {
		return s.node
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case time.Now().Before(r.avoid):
		return s.node
	case r.node != nil && r.seat == s:
		return r.node
	}
	r.node = nil
	if !r.chosen {
		r.chosen = g.home.atlas.background(func(ctx context.Context) { g.appoint(ctx, s) })
	}
	return s.node
}

// appoint chooses a replica for the reads to come.
func (g *group) appoint(ctx context.Context, s *seat) {
	n, replid, err := g.choose(ctx, s)
	r := g.tail.standin
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chosen = false
	if err != nil {
		r.avoid = time.Now().Add(replicaRest)
		return
	}
	r.node, r.seat, r.replid, r.at = n, s, replid, nil
}

// choose finds a replica that follows the seat's server.
func (g *group) choose(ctx context.Context, s *seat) (*node, string, error) {
	info, err := s.node.replication(ctx)
	if err != nil {
		return nil, "", err
	}
	found := followers(info)
	if len(found) == 0 {
		return nil, "", errNotFollowing
	}
	n := g.home.atlas.standIn(s.node, found[rand.IntN(len(found))])
	own, err := n.replication(ctx)
	if err != nil {
		return nil, "", err
	}
	if own["master_link_status"] != "up" || own["master_replid"] != info["master_replid"] {
		return nil, "", errNotFollowing
	}
	return n, info["master_replid"], nil
}

// replication is what a server says of whom it follows, and who follows it.
func (n *node) replication(ctx context.Context) (map[string]string, error) {
	results, err := n.doMulti(ctx, callLocate, n.client.B().Info().Section("replication").Build())
	if err != nil {
		return nil, err
	}
	text, err := results[0].ToString()
	if err != nil {
		return nil, n.translate(err)
	}
	return parseInfo(text), nil
}

// followers are the addresses of the replicas that follow, by the primary's word:
// slave0:ip=…,port=…,state=online,…
func followers(info map[string]string) (addrs []string) {
	for i := 0; ; i++ {
		line, ok := info[fmt.Sprint("slave", i)]
		if !ok {
			return addrs
		}
		fields := make(map[string]string)
		for part := range strings.SplitSeq(line, ",") {
			key, value, _ := strings.Cut(part, "=")
			fields[key] = value
		}
		if fields["state"] == "online" {
			addrs = append(addrs, net.JoinHostPort(fields["ip"], fields["port"]))
		}
	}
}

// begin notes how the read that begins can be cut.
func (r *standin) begin(cut context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

// drop has the primary read for some time, from now on.
func (r *standin) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked()
}

func (r *standin) dropLocked() {
	if r.node == nil {
		return
	}
	r.node, r.avoid = nil, time.Now().Add(replicaRest)
	if r.cut != nil {
		r.cut()
	}
}

// follows checks what the replica said of itself right after a read. The error
// means that what was read may be of another past.
func (r *standin) follows(said rueidis.RedisResult) error {
	text, err := said.ToString()
	if err != nil {
		r.drop()
		return err
	}
	info := parseInfo(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case info["master_replid"] != r.replid:
		r.dropLocked()
		return unavailable(errNotFollowing)
	case info["master_link_status"] != "up": // what it has is right, but more won't come
		r.dropLocked()
	}
	return nil
}

// watched compares where the reader is with where the log is: a replica that
// has been behind for some time, and doesn't move, is not read any more.
func (r *standin) watched(positions []event.ID, found []eventlog.Inspection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node == nil {
		return
	}
	behind := false
	for i := range found {
		behind = behind || positions[i].Less(found[i].State.Head)
	}
	switch {
	case !behind:
		r.at = nil
	case !slices.Equal(r.at, positions):
		r.at, r.since = slices.Clone(positions), time.Now()
	case time.Since(r.since) > replicaPatience:
		r.dropLocked()
	}
}

// background runs a function that ends with its context, unless it is too late.
func (a *atlas) background(run func(context.Context)) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.running.Go(func() { run(a.base) })
	return true
}

// standIn gives the connections to a replica.
func (a *atlas) standIn(primary *node, addr string) *node {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.standIns[addr]; n != nil {
		return n
	}
	n := newNode(primary.target.at(addr), a.opts)
	if a.closed {
		n.close(eventlog.ErrClosed)
		return n
	}
	a.standIns[addr] = n
	return n
}

// replicasOf reads a number of replicas, as WAIT answers.
func replicasOf(r rueidis.RedisResult) int {
	n, err := r.AsInt64()
	if err != nil {
		return 0
	}
	return int(n)
}

const (
	// replicaWait is how long an append waits for the replicas.
	replicaWait = time.Second
	// replicaSlack is what is left of the caller's time after that.
	replicaSlack = 100 * time.Millisecond
)

// wait is the command that waits for the replicas to have what was stored
// before it on the same connection.
func (n *node) wait(ctx context.Context) rueidis.Completed {
	most := n.patience
	if deadline, ok := ctx.Deadline(); ok {
		most = max(min(most, time.Until(deadline)-replicaSlack), time.Millisecond) // 0 would be for ever
	}
	return n.client.B().Wait().Numreplicas(int64(n.replicas)).Timeout(most.Milliseconds()).Build()
}

// store is doMulti for commands that store: it waits for the replicas, if that
// is asked for, unless one of the commands has failed.
func (n *node) store(ctx context.Context, call callName, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	if n.replicas == 0 {
		return n.doMulti(ctx, call, cmds...)
	}
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	results, err := n.doMulti(ctx, call, append(slices.Clip(cmds), n.wait(ctx))...)
	if err != nil {
		return nil, err
	}
	last := len(cmds)
	if stored(results[:last]) && replicasOf(results[last]) < n.replicas {
		return nil, n.notReplicated()
	}
	return results[:last], nil
}

func (n *node) notReplicated() error {
	return fmt.Errorf("%w: fewer than %s of them confirmed within %v", eventlog.ErrNotReplicated, strconv.Itoa(n.replicas), n.patience)
}
