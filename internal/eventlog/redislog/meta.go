package redislog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redisurl"

	"github.com/redis/rueidis"
)

const (
	// formatVersion is the version of keys, fields and records that we write.
	// Readers accept the one before theirs, so that a fleet can be upgraded
	// one gateway at a time.
	formatVersion = 1
	// assertEvery is how often the guard is looked at: a flush takes it away
	// with everything else, and the next one to come may have other settings.
	assertEvery = time.Second
)

// A guard is the hash that says how a log is laid out. There is one at each
// server, and one in a cluster.
type guard struct {
	// Set at construction, and by Open before anybody else looks.
	home *home
	want []setting
	// asserted is when the guard was last looked at, in Unix nanoseconds.
	asserted atomic.Int64
}

// A setting is a field of a guard. One without a value is not written; it
// stands there where another kind of log does.
type setting struct{ field, value, name string }

// settings are what every guard says, and those of a list of servers or of a
// cluster besides. index is the server's place in the list.
func (l *Log) settings(index int) []setting {
	list, count, place, tags := "", "", "", ""
	switch l.place.form {
	case redisurl.List:
		var addrs []string
		for _, t := range l.place.servers {
			addrs = append(addrs, t.addr)
		}
		list, count, place = strings.Join(addrs, ","), strconv.Itoa(len(addrs)), strconv.Itoa(index)
	case redisurl.Cluster:
		tags = strings.Join(tagsOf(l.groupCount()), ",")
	}
	return []setting{
		{"version", strconv.Itoa(l.opts.format), "format version"},
		{"shards", strconv.Itoa(l.opts.Shards), "shards"},
		{"list", list, "list of servers"},
		{"servers", count, "number of servers"},
		{"index", place, "place of this server in the list"},
		{"groups", strconv.Itoa(l.groupCount()), "groups"},
		{"tags", tags, "hash tags of the groups"},
	}
}

// adopt is the first look at a guard. A log keeps the format that it was made
// with until everybody who uses it knows the next one: who finds the format
// before its own also writes the guard anew as that, or a flush in the middle of
// an upgrade would shut the older gateways out.
func (l *Log) adopt(ctx context.Context, g *guard) error {
	stored, err := l.assert(ctx, g)
	if err == nil {
		g.want[0].value = stored[0]
	}
	return err
}

// readable reports whether a program that writes a format reads the stored one.
func readable(stored string, format int) bool {
	version, err := strconv.Atoi(stored)
	return err == nil && version >= 1 && (version == format || version == format-1)
}

// assert writes a guard if there is none, compares, and returns what stands
// there of each setting.
func (l *Log) assert(ctx context.Context, g *guard) ([]string, error) {
	var args []string
	for _, s := range g.want {
		args = append(args, s.field, s.value)
	}
	reply, err := g.home.eval(ctx, callCheck, metaScript, []string{l.opts.Prefix + ":meta"}, args)
	if err != nil {
		return nil, fmt.Errorf("reading the log's guard %s:meta: %w", l.opts.Prefix, err)
	}
	stored, err := texts(reply, len(g.want))
	if err != nil {
		return nil, err
	}
	g.asserted.Store(time.Now().UnixNano())
	for i, s := range g.want {
		if i == 0 && readable(stored[0], l.opts.format) {
			continue
		}
		if stored[i] != s.value {
			return nil, l.mismatch(g, s.name, orNone(stored[i]), orNone(s.value))
		}
	}
	return stored, nil
}

// orNone names what isn't there.
func orNone(value string) string {
	if value == "" {
		return "(none)"
	}
	return value
}

func (l *Log) mismatch(g *guard, name, stored, configured string) error {
	err := &eventlog.MismatchError{Log: g.home.node().addr + " " + l.opts.Prefix + ":meta", Setting: name, Stored: stored, Configured: configured}
	l.refusal.Store(err)
	return err
}

// reassert is assert from time to time. A mismatch that appears while we run is
// for good: with another shard count events would be lost in silence.
func (l *Log) reassert(ctx context.Context, g *guard) error {
	if err := l.refused(); err != nil {
		return err
	}
	last := g.asserted.Load()
	if now := time.Now().UnixNano(); now-last < int64(assertEvery) || !g.asserted.CompareAndSwap(last, now) {
		return nil
	}
	_, err := l.assert(ctx, g)
	if l.refused() != nil {
		l.opts.Logger.Error("the log has another layout than this gateway: nothing is written any more", "error", err)
	}
	return err
}

// refused is the mismatch that was found, or nil.
func (l *Log) refused() error {
	if err := l.refusal.Load(); err != nil {
		return err
	}
	return nil
}

// checkServer refuses a server that can't keep the contract.
func checkServer(ctx context.Context, n *node, opts *Options, f redisurl.Form) error {
	info, err := askInfo(ctx, n)
	if err != nil {
		return err
	}
	if policy := info["maxmemory_policy"]; policy != noEviction && opts.AllowEviction {
		opts.Logger.Warn("this Redis may evict events: a device can miss some, and will only be told so where it is noticed",
			"server", n.addr, "maxmemory_policy", policy)
	}
	return unfit(n.addr, info, opts, f)
}

func askInfo(ctx context.Context, n *node) (map[string]string, error) {
	reply, err := n.do(ctx, n.client.B().Info().Build())
	if err != nil {
		return nil, fmt.Errorf("asking Redis for INFO: %w", err)
	}
	text, err := reply.ToString()
	if err != nil {
		return nil, fmt.Errorf("asking Redis for INFO: %w", err)
	}
	return parseInfo(text), nil
}

// noEviction is the one policy by which Redis deletes nothing by itself.
const noEviction = "noeviction"

// unfit is why a server can't keep the contract, by what its INFO says.
func unfit(addr string, info map[string]string, opts *Options, f redisurl.Form) error {
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if v, err := strconv.Atoi(major); err != nil || v < 7 {
		return fmt.Errorf("Redis at %s is version %q: 7.0 or newer is needed", addr, info["redis_version"])
	}
	switch clustered := info["cluster_enabled"] == "1"; {
	case clustered && f != redisurl.Cluster:
		return fmt.Errorf("Redis at %s is part of a cluster: its URL must be redis+cluster://…", addr)
	case !clustered && f == redisurl.Cluster:
		return fmt.Errorf("Redis at %s is no part of a cluster: its URL must be redis://… or redis+sentinel://…", addr)
	}
	if role := info["role"]; role != "master" {
		return unavailable(fmt.Errorf("Redis at %s is a replica of %s:%s: name the primary", addr, info["master_host"], info["master_port"]))
	}
	if policy := info["maxmemory_policy"]; policy != noEviction && !opts.AllowEviction {
		return fmt.Errorf("Redis at %s has maxmemory-policy %q, by which it may delete events and the notes about them: "+
			"set it to noeviction, or start with --allow-eviction", addr, policy)
	}
	return nil
}

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// texts reads a reply of n strings; a nil among them is the empty string.
func texts(m rueidis.RedisMessage, n int) ([]string, error) {
	values, err := m.ToArray()
	if err != nil || len(values) != n {
		return nil, oddReply(err)
	}
	out := make([]string, n)
	for i := range values {
		if values[i].IsNil() {
			continue
		}
		if out[i], err = values[i].ToString(); err != nil {
			return nil, oddReply(err)
		}
	}
	return out, nil
}

// oddReply says that a reply has a shape that our own scripts don't return.
func oddReply(err error) error {
	if err == nil {
		err = eventlog.ErrUnavailable
	}
	return unavailable(fmt.Errorf("a reply of Redis has an unknown form: %w", err))
}
