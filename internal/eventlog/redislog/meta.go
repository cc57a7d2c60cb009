package redislog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"downlink/internal/eventlog"

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

// assertMeta writes the guard if there is none, and compares.
func (l *Log) assertMeta(ctx context.Context, n *node) error {
	groups := strconv.Itoa(len(l.groups))
	reply, err := n.eval(ctx, callCheck, metaScript, []string{l.opts.Prefix + ":meta"},
		[]string{strconv.Itoa(formatVersion), strconv.Itoa(l.opts.Shards), groups})
	if err != nil {
		return fmt.Errorf("reading the log's guard %s:meta: %w", l.opts.Prefix, err)
	}
	stored, err := texts(reply, 3)
	if err != nil {
		return err
	}
	l.asserted.Store(time.Now().UnixNano())
	version, _ := strconv.Atoi(stored[0])
	switch {
	case version < 1 || version > formatVersion || version < formatVersion-1:
		return l.mismatch("format version", stored[0], strconv.Itoa(formatVersion))
	case stored[1] != strconv.Itoa(l.opts.Shards):
		return l.mismatch("shards", stored[1], strconv.Itoa(l.opts.Shards))
	case stored[2] != groups:
		return l.mismatch("groups", stored[2], groups)
	}
	return nil
}

func (l *Log) mismatch(setting, stored, configured string) error {
	err := &eventlog.MismatchError{Log: l.groups[0].node.addr + " " + l.opts.Prefix + ":meta", Setting: setting, Stored: stored, Configured: configured}
	l.refusal.Store(err)
	return err
}

// reassert is assertMeta from time to time. A mismatch that appears while we
// run is for good: with another shard count events would be lost in silence.
func (l *Log) reassert(ctx context.Context, n *node) error {
	if err := l.refused(); err != nil {
		return err
	}
	last := l.asserted.Load()
	if now := time.Now().UnixNano(); now-last < int64(assertEvery) || !l.asserted.CompareAndSwap(last, now) {
		return nil
	}
	err := l.assertMeta(ctx, n)
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
func checkServer(ctx context.Context, n *node, opts *Options) error {
	reply, err := n.do(ctx, callCheck, n.client.B().Info().Build())
	if err != nil {
		return fmt.Errorf("asking Redis for INFO: %w", err)
	}
	text, err := reply.ToString()
	if err != nil {
		return fmt.Errorf("asking Redis for INFO: %w", err)
	}
	info := parseInfo(text)
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if v, err := strconv.Atoi(major); err != nil || v < 7 {
		return fmt.Errorf("Redis at %s is version %q: 7.0 or newer is needed", n.addr, info["redis_version"])
	}
	if info["cluster_enabled"] == "1" {
		return fmt.Errorf("Redis at %s is part of a cluster, which a URL of one server can't serve", n.addr)
	}
	if role := info["role"]; role != "master" {
		return unavailable(fmt.Errorf("Redis at %s is a replica of %s:%s: name the primary", n.addr, info["master_host"], info["master_port"]))
	}
	return checkEviction(n, opts, info["maxmemory_policy"])
}

func checkEviction(n *node, opts *Options, policy string) error {
	if policy == "noeviction" {
		return nil
	}
	if !opts.AllowEviction {
		return fmt.Errorf("Redis at %s has maxmemory-policy %q, by which it may delete events and the notes about them: "+
			"set it to noeviction, or start with --allow-eviction", n.addr, policy)
	}
	opts.Logger.Warn("this Redis may evict events: a device can miss some, and will only be told so where it is noticed",
		"server", n.addr, "maxmemory_policy", policy)
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
