package redislog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"downlink/internal/eventlog"
)

// A Load is how much one server of the log has to do and to hold. If Err isn't
// nil, nothing else of it is known but Server.
type Load struct {
	Server string    // host:port
	Run    string    // its run ID: another one means that its counters began anew
	Asked  time.Time // when the answer had come

	Used uint64 // bytes, as they count for the maximum: buffers of replicas don't
	Most uint64 // maxmemory in bytes; 0: there is none
	// System is the memory of the machine, in bytes.
	System uint64
	// Policy is what it does at the maximum: "noeviction" is to refuse events.
	Policy string

	Output   uint64 // bytes that it has sent, to clients and replicas, since its start
	Commands uint64 // that it has executed since its start

	Err error // why it isn't known; it has no secrets
}

// Servers are the servers of a log, for somebody who only looks at them: nothing
// is written, and no log needs to be there yet.
type Servers struct{ log *Log }

// OpenServers finds the servers that a URL names. The error wraps ErrUnavailable
// if it may help to try again later.
func OpenServers(ctx context.Context, opts Options) (*Servers, error) {
	l, err := find(opts)
	if err != nil {
		return nil, err
	}
	if err := l.arrange(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.atlas.start()
	return &Servers{l}, nil
}

// Loads are those of the log's servers, as Log.Loads says.
func (s *Servers) Loads(ctx context.Context) []Load { return s.log.Loads(ctx) }

// Close ends every call and the connections.
func (s *Servers) Close() error { return s.log.Close() }

// Loads asks every server that serves a part of the log now, all at once, in
// the order of their names. It answers within ctx, or the limit of a call.
func (l *Log) Loads(ctx context.Context) []Load {
	var nodes []*node
	for _, h := range l.atlas.homes {
		if n := h.node(); !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	loads := make([]Load, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		asking.Go(func() { loads[i] = n.load(ctx) })
	}
	asking.Wait()
	slices.SortFunc(loads, func(a, b Load) int { return cmp.Compare(a.Server, b.Server) })
	return loads
}

func (n *node) load(ctx context.Context) Load {
	reply, err := n.do(ctx, n.client.B().Info().Section("server", "persistence", "memory", "stats", "replication").Build())
	if err != nil {
		return Load{Server: n.addr, Err: err}
	}
	text, err := reply.ToString()
	if err != nil {
		return Load{Server: n.addr, Err: oddReply(err)}
	}
	return readLoad(n.addr, text, time.Now())
}

// readLoad reads an INFO. What isn't there, or can't be so, is an error and
// never a zero.
func readLoad(server, text string, asked time.Time) Load {
	info := parseInfo(text)
	l := Load{Server: server, Asked: asked, Run: info["run_id"], Policy: info["maxmemory_policy"]}
	var apart uint64
	var faults []error
	for _, f := range []struct {
		name string
		into *uint64
	}{
		{"used_memory", &l.Used}, {"maxmemory", &l.Most}, {"total_system_memory", &l.System}, {"mem_not_counted_for_evict", &apart},
		{"total_net_output_bytes", &l.Output}, {"total_commands_processed", &l.Commands},
	} {
		var err error
		if *f.into, err = strconv.ParseUint(info[f.name], 10, 64); err != nil {
			faults = append(faults, fmt.Errorf("its %s is %q", f.name, info[f.name]))
		}
	}
	switch {
	case len(faults) > 0:
		l.Err = fmt.Errorf("Redis at %s answers INFO as no Redis does: %w", server, errors.Join(faults...))
	case l.Run == "" || l.Policy == "" || l.Used <= apart:
		l.Err = fmt.Errorf("Redis at %s answers INFO as no Redis does: run_id %q, maxmemory_policy %q, %d bytes in use of which %d don't count",
			server, l.Run, l.Policy, l.Used, apart)
	case info["loading"] != "0":
		l.Err = fmt.Errorf("%w: Redis at %s is loading its data, and what it holds isn't all there yet", eventlog.ErrUnavailable, server)
	case info["role"] != "master":
		l.Err = fmt.Errorf("%w: Redis at %s is a replica, whose memory and traffic aren't the log's", eventlog.ErrUnavailable, server)
	}
	if l.Err != nil {
		return Load{Server: server, Err: l.Err}
	}
	l.Used -= apart
	return l
}
