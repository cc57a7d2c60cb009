package redislog

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// What docs/operate/durability.md says of restarts and of what nobody can know.
// Failovers under gateways are in test/e2e.

// promote makes a replica the primary by hand, and gives a log there.
func (r *rig) promote(replica *testkit.Redis) *rig {
	r.Helper()
	replica.Do("REPLICAOF", "NO", "ONE")
	return &rig{TB: r.TB, redis: replica, opts: withURL(r.opts, replica.URL()), Log: open(r.TB, withURL(r.opts, replica.URL()))}
}

// gone fails the test unless an entry is really lost.
func gone(t *testing.T, server *testkit.Redis, id event.ID) {
	t.Helper()
	if server.Holds(stream0, id.String()) {
		t.Fatal("nothing was lost, this proves nothing")
	}
}

// backAt waits until the log answers again, and returns what it says of a tail's
// position.
func (r *rig) backAt(position event.ID) (reason event.Reason) {
	r.Helper()
	positions := make([]event.ID, r.Shards())
	positions[0] = position
	r.eventually(func() bool {
		in, err := r.Inspect(context.Background(), 0, positions)
		if err == nil {
			reason = in[0].Reason
		}
		return err == nil
	})
	return reason
}

// TestRestartWithFileEverySecond: Redis writes its file before it answers and
// has the disk confirm it once a second, so a process that dies loses nothing.
func TestRestartWithFileEverySecond(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, testkit.RedisConfig("appendonly yes", "appendfsync everysec"))
	first, last := r.app("a"), r.app("b")
	r.awaitFile("payload for b")
	r.redis.Kill9()
	r.redis.Start()
	r.back()
	r.want("held", first, "a", "")
	r.want("held", last, "b", "")
	if st := r.state(); len(st.Breaks) != 0 {
		t.Errorf("%+v", st)
	}
}

// file is the growing part of the append-only file.
func (r *rig) file() string {
	r.Helper()
	names, err := filepath.Glob(filepath.Join(r.redis.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(names) != 1 {
		r.Fatalf("append-only files: %v, %v", names, err)
	}
	return names[0]
}

// awaitFile waits until the file holds a text, and returns its size then.
func (r *rig) awaitFile(text string) (size int64) {
	r.Helper()
	r.eventually(func() bool {
		content, err := os.ReadFile(r.file())
		size = int64(len(content))
		return err == nil && bytes.Contains(content, []byte(text))
	})
	return size
}

// TestPowerFailure: the machine loses what its disk had not confirmed. Whoever
// had read it knows; where every gateway died with the machine, nobody does, as
// the page admits.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, testkit.RedisConfig("appendonly yes", "appendfsync everysec"))
	kept := r.app("kept")
	size := r.awaitFile("payload for kept")
	lost := r.app("lost")
	r.redis.Kill9()
	if err := os.Truncate(r.file(), size); err != nil {
		t.Fatal(err)
	}
	r.redis.Start()
	gone(t, r.redis, lost)
	dead := open(t, r.opts) // a gateway that knows nothing of before
	reasons, _, err := dead.Judge(t.Context(), 0, []eventlog.Question{{Cursor: kept, Targets: []string{"lost"}}})
	if err != nil || reasons[0] != "" {
		t.Errorf("nobody can know, and yet it says %q, %v", reasons, err)
	}
	if reason := r.backAt(lost); reason != event.LogRewound {
		t.Errorf("a gateway that had read it is told %q", reason)
	}
	if _, err := r.Suspect(t.Context(), 0, lost); err != nil { // as its tail does
		t.Fatal(err)
	}
	r.want("a device that had not got it", kept, "lost", event.LogRewound)
	r.want("a device that had", lost, "lost", event.LogRewound)
}

// TestPowerFailureOfTheAcknowledged: nobody had read it, but the gateway that
// has acknowledged it lives.
func TestPowerFailureOfTheAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, testkit.RedisConfig("appendonly yes", "appendfsync everysec"))
	kept := r.app("kept")
	size := r.awaitFile("payload for kept")
	lost := r.app("lost")
	r.redis.Kill9()
	if err := os.Truncate(r.file(), size); err != nil {
		t.Fatal(err)
	}
	r.redis.Start()
	gone(t, r.redis, lost)
	if reason := r.backAt(kept); reason != event.LogRewound {
		t.Errorf("a tail that had not read it is told %q", reason)
	}
	r.want("a device that had not got it", kept, "lost", event.LogRewound)
}

// TestKnownAlthoughThePositionIsGone: the gateway's own position has left the
// window; what it has acknowledged and is missing is told all the same.
func TestKnownAlthoughThePositionIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Failover = Evidence }, testkit.RedisConfig("appendonly yes", "appendfsync everysec"))
	kept := r.app("kept")
	size := r.awaitFile("payload for kept")
	lost := r.app("lost")
	r.redis.Kill9()
	if err := os.Truncate(r.file(), size); err != nil {
		t.Fatal(err)
	}
	r.redis.Start()
	gone(t, r.redis, lost)
	if reason := r.backAt(event.ID{Ms: 1}); reason == "" {
		t.Error("a position from long ago is in no doubt")
	}
	r.want("a device that had not got it", kept, "lost", event.LogRewound)
}

// TestPrimaryEmptiesItsReplica: a primary without a file that is restarted
// before anybody is promoted comes back empty, and its replica copies that.
func TestPrimaryEmptiesItsReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Failover = Evidence })
	replica := r.replica()
	opts := r.opts
	opts.Replicas, opts.replicaWait = 1, opts.CallTimeout
	r.Log = open(t, opts)
	lost, founded := r.app("a"), r.state().Founded
	if !replica.Holds(stream0, lost.String()) {
		t.Fatal("it was accepted without the replica")
	}
	r.redis.Kill9()
	r.redis.Start()
	replica.AwaitLink("up")
	r.eventually(func() bool { return !replica.Holds(stream0, lost.String()) })
	gone(t, r.redis, lost)
	r.want("a device that had it", lost, "a", event.WindowExpired)
	if st := r.state(); st.Founded == founded {
		t.Error("a tail can't know that another log stands where its own stood")
	}
	// As a tail does that knows another record.
	if _, err := r.Suspect(t.Context(), 0, lost); err != nil {
		t.Fatal(err)
	}
	r.want("a device that had it", lost, "a", event.LogRewound)
}

// TestNobodyKnows: the primary dies with the only gateway that has seen an
// event, before its replica has it. By caution its devices are told all the
// same; who asks for evidence gets none, as the page admits.
func TestNobodyKnows(t *testing.T) {
	for _, failover := range []Failover{Cautious, Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Failover = failover })
			replica := r.replica()
			kept := r.app("a")
			r.redis.AwaitReplica()
			r.redis.CutReplicas(replica)
			lost := r.app("a")
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r.redis.Kill9()
			after := r.promote(replica)
			gone(t, replica, lost)
			want := event.LogUncertain
			if failover == Evidence {
				want = ""
			}
			after.want("a device that missed it", kept, "a", want)
		})
	}
}

// TestNobodyKnowsOfAStalePrimary: a gateway goes on storing at a primary that was
// replaced, as in a partition, and dies before it can say so; the others had told
// their devices before. By caution or not, the page admits, nobody is told of what
// it has acknowledged; with replicas:1 it acknowledges nothing.
func TestNobodyKnowsOfAStalePrimary(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	replica := r.replica()
	kept := r.app("a")
	r.redis.AwaitReplica()
	opts := r.opts
	opts.Replicas = 1
	safe := open(t, opts)
	r.redis.CutReplicas(replica)
	after := r.promote(replica)
	told := after.state().Head
	after.want("a device from before", kept, "a", event.LogUncertain)
	r.eventually(func() bool { return uint64(time.Now().UnixMilli()) > told.Ms })
	lost := r.app("a")
	refused := safe.Append(t.Context(), []eventlog.Append{{Events: []event.Event{{Target: "a", Type: "t", Payload: "p"}}}})[0]
	if !errors.Is(refused.Err, eventlog.ErrNotReplicated) {
		t.Errorf("with replicas:1 it was stored: %+v", refused)
	}
	if err := errors.Join(r.Close(), safe.Close()); err != nil {
		t.Fatal(err)
	}
	r.redis.Kill9()
	gone(t, replica, lost)
	after.want("a device that was told before", told, "a", "")
}

// TestRawAppendLost: nobody but its producer has seen an entry that is lost
// with the primary. By caution every device is told.
func TestRawAppendLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	replica := r.replica()
	kept := r.app("a")
	r.redis.AwaitReplica()
	r.redis.CutReplicas(replica)
	lost := xadd(t, r.redis, stream0, "*", "dev", "a", "type", "t", "payload", "p")
	r.redis.Kill9()
	after := r.promote(replica)
	gone(t, replica, lost)
	after.want("a device that missed it", kept, "a", event.LogUncertain)
	if in := after.inspect(kept); in.Reason != event.LogUncertain {
		t.Errorf("a tail that had not read it is told %q", in.Reason)
	}
}

// TestTooFewReplicas: a server that is told to hold writes back while it has too
// few replicas says so, and the publisher is told that nothing is claimed.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.redis.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	for _, once := range []*eventlog.Once{nil, {Scope: "s", Key: "k", Fingerprint: "f"}} {
		res := r.try(t.Context(), "a", once)
		if res.Err == nil || !res.IDs[0].IsZero() || !strings.Contains(res.Err.Error(), "min-replicas-to-write") {
			t.Errorf("%+v", res)
		}
	}
	if n := r.redis.Do("XLEN", stream0); n != int64(0) {
		t.Errorf("%v entries", n)
	}
}

// TestAcknowledgedByTheServerBefore: what the old server acknowledged is asked
// for although the new one has acknowledged more since, with higher IDs.
func TestAcknowledgedByTheServerBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Failover = Evidence })
	replica := r.replica()
	proxy := testkit.StartProxy(t, r.redis.Addr())
	r.opts.URL = "redis://" + proxy.Addr()
	r.Log = open(t, r.opts)
	kept := r.app("a")
	r.redis.AwaitReplica()
	r.redis.CutReplicas(replica)
	lost := r.app("a")
	replica.Do("REPLICAOF", "NO", "ONE")
	proxy.Retarget(replica.Addr())
	r.eventually(func() bool { return r.try(t.Context(), "b", nil).Err == nil })
	gone(t, replica, lost)
	if reason := r.backAt(kept); reason != event.LogRewound {
		t.Errorf("a tail that had not read it is told %q", reason)
	}
	r.want("a device that missed it", kept, "a", event.LogRewound)
	head := r.state().Head
	if in := r.inspect(head); in.Reason != "" || in.State.Head != head {
		t.Errorf("and once more: %+v", in)
	}
}

// knows: a loss that was told already isn't told again, and no cursor is judged
// anew for it.
func (r *rig) knows(lost, cursor event.ID) {
	r.Helper()
	before := r.state()
	reason := r.judge(cursor, "a")
	after, err := r.Suspect(context.Background(), 0, lost)
	if err != nil || after.Head != before.Head || len(after.Breaks) != len(before.Breaks) {
		r.Errorf("%+v after %+v, %v", after, before, err)
	}
	r.want("of after the loss", cursor, "a", reason)
}

// TestReplacedServerGoesOn: some gateways have left a server that was replaced,
// and have told their devices; others go on storing there until they learn of
// it. What they then report is told to everybody again, once.
func TestReplacedServerGoesOn(t *testing.T) {
	for _, failover := range []Failover{Cautious, Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Failover = failover })
			replica := r.replica()
			r.app("a")
			r.redis.AwaitReplica()
			r.redis.CutReplicas(replica)
			first := r.app("a")
			after := r.promote(replica)
			report := func(id event.ID) event.ID {
				t.Helper()
				st, err := after.Suspect(t.Context(), 0, id)
				if err != nil {
					t.Fatal(err)
				}
				return st.Head
			}
			told := report(first)
			after.want("a device that was told", told, "a", "")
			r.eventually(func() bool { return uint64(time.Now().UnixMilli()) > told.Ms })  // likewise, see below
			later := r.app("a")                                                            // by a gateway that is late
			r.eventually(func() bool { return uint64(time.Now().UnixMilli()) > later.Ms }) // or the next one may have its ID
			next := after.app("b")
			again := report(later)
			gone(t, replica, later)
			after.want("a device that was told too early", told, "a", event.LogRewound)
			after.want("and went on", next, "a", event.LogRewound)
			after.want("a device that was told again", again, "a", "")
			for _, id := range []event.ID{later, first} {
				if head := report(id); head != again {
					t.Errorf("what is known moves the head from %s to %s", again, head)
				}
			}
			if n := len(after.state().Breaks); n != 1 {
				t.Errorf("one failover has made %d breaks", n)
			}

			// At the next failover, which loses nothing, it is known as well.
			third := testkit.StartRedis(t)
			third.Follow(replica)
			replica.AwaitReplica()
			after.promote(third).knows(later, again)
		})
	}
}
