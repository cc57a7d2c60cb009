package redislog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// What docs/operate/upgrade.md promises to gateways of two versions on one log.

// neighbours are logs on one server, as gateways of two versions open it: the
// older one's format is formatVersion, the newer one's the next.
func neighbours(t *testing.T) (older *rig, newer Options) {
	older = newRig(t, nil)
	newer = older.opts
	newer.format = formatVersion + 1
	return older, newer
}

// as is a rig on the same server.
func (r *rig) as(l *Log) *rig { return &rig{TB: r.TB, Log: l, redis: r.redis, opts: l.opts} }

func TestTwoFormatsSideBySide(t *testing.T) {
	t.Parallel()
	older, options := neighbours(t)
	newer := older.as(open(t, options))
	for name, by := range map[string][2]*rig{"the older first": {older, newer}, "the newer first": {newer, older}} {
		a, b := by[0], by[1]
		once := &eventlog.Once{Scope: name, Key: "key", Fingerprint: "print"}
		stored, again := a.try(t.Context(), "x", once), b.try(t.Context(), "x", once)
		if stored.Err != nil || again.Err != nil || !again.Repeated || !slices.Equal(stored.IDs, again.IDs) {
			t.Errorf("%s: one event under one key: %+v, repeated %+v", name, stored, again)
		}
		last := b.app("x")
		for _, r := range by {
			r.want(name, stored.IDs[0], "x", "")
			r.want(name, last, "x", "")
		}
		if a.state().Founded != b.state().Founded {
			t.Errorf("%s: the record was begun anew", name)
		}
		if _, err := a.order(eventlog.Revoke, name); err != nil || !slices.ContainsFunc(b.list().List, func(o eventlog.Revocation) bool { return o.Device == name }) {
			t.Errorf("%s: a revoked device, %v: the other sees %+v", name, err, b.list())
		}
		for i, r := range by {
			if first, err := r.Claim(t.Context(), 0, name, time.Minute); err != nil || first != (i == 0) {
				t.Errorf("%s: claim %d: %v, %v", name, i, first, err)
			}
		}
		// What is gone, both know of.
		a.redis.Do("XTRIM", stream0, "MAXLEN", "=", "0")
		for _, r := range by {
			r.want(name, stored.IDs[0], "x", event.WindowExpired)
			r.want(name, r.state().Head, "x", "")
		}
	}
}

// TestAFlushDuringAnUpgrade: whoever comes first afterwards writes the guard.
func TestAFlushDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	older, options := neighbours(t)
	newer := older.as(open(t, options))
	older.redis.Do("FLUSHALL")
	for _, r := range []*rig{newer, older} {
		r.guards[0].asserted.Store(0)
		r.sweep(nil)
		r.app("x")
	}
	if got := older.redis.Do("HGET", "pos-ev:meta", "version"); got != "1" {
		t.Errorf("the guard says version %v", got)
	}
	open(t, older.opts)
}

// TestFormatsApart: a format that somebody can't read is refused, by those that
// start, and by those that run, and by nobody else.
func TestFormatsApart(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	older := testOptions(t, server)
	newer, newest := older, older
	newer.format, newest.format = formatVersion+1, formatVersion+2
	refused := func(what string, err error, stored, configured string) {
		t.Helper()
		var m *eventlog.MismatchError
		if !errors.As(err, &m) || m.Setting != "format version" || m.Stored != stored || m.Configured != configured {
			t.Errorf("%s: %v", what, err)
		}
	}
	open(t, newer) // makes it
	_, err := Open(t.Context(), older)
	refused("the older one, on a log of the newer one", err, "2", "1")
	open(t, newest)

	server.Do("HSET", "pos-ev:meta", "version", "1")
	_, err = Open(t.Context(), newest)
	refused("two formats apart", err, "1", "3")
	running, ahead := open(t, older), open(t, newer)
	server.Do("HSET", "pos-ev:meta", "version", "2") // the log is raised
	for _, l := range []*Log{running, ahead} {
		l.guards[0].asserted.Store(0)
	}
	_, err = running.Sweep(t.Context(), 0, nil)
	refused("the older one, running", err, "2", "1")
	if _, err := ahead.Sweep(t.Context(), 0, nil); err != nil {
		t.Errorf("the newer one, running: %v", err)
	}
	for _, stored := range []string{"", "0", "x", "-1", "1 "} {
		if readable(stored, 1) {
			t.Errorf("version %q is read", stored)
		}
	}
}

// TestWhatAnotherVersionAdds: fields that this version doesn't know change
// nothing, and those that an older one didn't have may be missing.
func TestWhatAnotherVersionAdds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	before := r.state()
	r.redis.Do("HSET", "pos-ev:meta", "newer", "x")
	r.redis.Do("HSET", record0, "newer", "x")
	r.redis.Do("HDEL", record0, "lost")
	r.redis.Do("XADD", stream0, "*", "newer", "x", "dev", "a", "type", "t", "payload", "p", "after", "y")
	r.redis.Do("XADD", stream0, "*", "dev", "a", "type", "t", "payload", "the least that an entry has")
	r.redis.Do("XADD", stream0, "*", "dev", event.ControlTarget, "type", "an order of tomorrow", "payload", "{}")
	open(t, r.opts)
	if now := r.state(); now.Founded != before.Founded || now.Since != before.Since {
		t.Errorf("the record was begun anew: %+v, then %+v", before, now)
	}
	r.want("a cursor from before", before.Head, "a", "")
	page, err := r.Range(context.Background(), 0, before.Head, r.state().Head, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var faults []eventlog.Fault
	for _, e := range page.Entries {
		faults = append(faults, e.Fault)
	}
	if want := []eventlog.Fault{"", "", eventlog.FaultControl}; !slices.Equal(faults, want) {
		t.Errorf("the entries have the faults %q, want %q", faults, want)
	}
}
