package redislog

import (
	"context"
	"errors"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// back waits until the log answers again after its server was away.
func (r *rig) back() {
	r.Helper()
	r.eventually(func() bool {
		_, err := r.Inspect(context.Background(), 0, make([]event.ID, r.Shards()))
		return err == nil
	})
}

func TestRestartFromTheAppendOnlyFileIsProof(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("appendonly yes", "appendfsync always"))
	first, last := r.app("a"), r.app("b")
	before := r.state()
	r.redis.Kill9()
	r.redis.Start()
	r.back()
	if now := r.state(); len(now.Breaks) != 0 || now.Founded != before.Founded || now.Since != before.Since {
		t.Errorf("after a restart from the append-only file: %+v, before: %+v", now, before)
	}
	r.want("held", first, "a", "")
	r.want("held", last, "a", "")
	r.app("c")
}

func TestRestartFromASnapshotIsUncertain(t *testing.T) {
	for _, failover := range []Failover{Cautious, Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Failover = failover })
			first, last := r.app("a"), r.app("b")
			r.redis.Do("SAVE")
			r.redis.Restart()
			r.back()
			want := event.Reason("")
			if failover == Cautious {
				want = event.LogUncertain
			}
			r.want("from before", first, "a", want)
			r.want("the snapshot's head: something may have come after it", last, "a", want)
			in := r.inspect(last)
			if in.Reason != want {
				t.Errorf("the tail at the snapshot's head is judged %q, want %q", in.Reason, want)
			}
			if failover == Evidence && in.State.Head != last {
				t.Errorf("the head moved from %s to %s without an entry: a tail would wait for it", last, in.State.Head)
			}
			r.want("who has resynced", in.State.Head, "a", "")
			next := r.app("a")
			r.want("who has resynced, later", in.State.Head, "a", "")
			r.want("after", next, "a", "")
			if n := len(r.state().Breaks); n > 1 {
				t.Errorf("one restart has made %d breaks", n)
			}
		})
	}
}

// An older snapshot comes back while a gateway's position is ahead of it.
func TestOlderSnapshot(t *testing.T) {
	for _, failover := range []Failover{Cautious, Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Failover = failover })
			kept := r.app("a")
			r.redis.Do("SAVE")
			lost := []event.ID{r.app("a"), r.app("b")}
			r.redis.Kill9()
			r.redis.Start()
			r.back()
			in := r.inspect(lost[1])
			if in.Reason != event.LogRewound {
				t.Fatalf("the tail's lost position is judged %q; state %+v", in.Reason, in.State)
			}
			// Two gateways report it, the slower one first, while the log goes on.
			for _, reach := range lost {
				r.app("c")
				if _, err := r.Suspect(t.Context(), 0, reach); err != nil {
					t.Fatal(err)
				}
			}
			st := r.state()
			if len(st.Breaks) != 1 || st.Breaks[0].Reason != event.LogRewound || st.Breaks[0].Reach.Less(lost[1]) {
				t.Errorf("two reports of one loss made %+v", st.Breaks)
			}
			for range 3 {
				r.app("c")
			}
			r.want("the lost branch", lost[0], "a", event.LogRewound)
			r.want("the lost branch", lost[1], "b", event.LogRewound)
			r.want("the head that was left: what came after it is lost", kept, "a", event.LogRewound)
			r.want("the new branch", r.app("a"), "a", "")
		})
	}
}

// A replica that is promoted descends from another: that is no proof.
func TestPromotion(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("appendonly yes"))
	other := testkit.StartRedis(t)
	host, port := other.HostPort()
	first := r.app("a")
	r.app("b")
	r.redis.Do("REPLICAOF", host, port)
	if res := r.try(t.Context(), "x", nil); !errors.Is(res.Err, eventlog.ErrUnavailable) {
		t.Errorf("an append to a replica answers %v", res.Err)
	}
	if _, _, err := r.Judge(t.Context(), 0, nil); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a verdict of a replica: %v", err)
	}
	r.redis.Do("REPLICAOF", "NO", "ONE")
	r.back()
	if got := r.judge(first, "a"); got == "" {
		t.Errorf("a cursor from before a promotion is served; state %+v", r.state())
	}
}

func TestPromotionOfACompleteReplica(t *testing.T) {
	primary := newRig(t, nil, testkit.RedisConfig("repl-diskless-sync-delay 0"))
	first := primary.app("a")
	primary.app("b")
	replica := testkit.StartRedis(t)
	host, port := primary.redis.HostPort()
	replica.Do("REPLICAOF", host, port)
	primary.eventually(func() bool { return replica.Do("EXISTS", stream0) == int64(1) })
	if _, err := Open(t.Context(), withURL(primary.opts, replica.URL())); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Open on a replica: %v", err)
	}
	replica.Do("REPLICAOF", "NO", "ONE")
	primary.redis.Kill9()

	r := &rig{TB: t, redis: replica, Log: open(t, withURL(primary.opts, replica.URL()))}
	r.want("nobody can prove that it got everything", first, "a", event.LogUncertain)
	if n := len(r.state().Breaks); n != 1 {
		t.Errorf("%d breaks", n)
	}
}

func withURL(o Options, url string) Options {
	o.URL = url
	return o
}

func TestReadOverARestart(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("appendonly yes", "appendfsync always"))
	positions := make([]event.ID, r.Shards())
	positions[0] = r.app("a")
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := r.Read(context.Background(), 0, positions); err != nil {
				failed <- err
				return
			}
		}
	}()
	r.redis.Kill9()
	if err := <-failed; !errors.Is(err, eventlog.ErrUnavailable) {
		t.Fatalf("Read while the server died: %v", err)
	}
	if _, err := r.Read(t.Context(), 0, positions); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Read while the server is away: %v", err)
	}
	began := time.Now()
	if _, err := r.Range(t.Context(), 0, event.ID{}, event.MaxID, 1000); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Range while the server is away: %v", err)
	}
	if took := time.Since(began); took > r.opts.CallTimeout/2 {
		t.Errorf("Range waited %v for a server that is away", took)
	}
	r.redis.Start()
	r.back()
	next := r.app("a")
	r.eventually(func() bool {
		batches, err := r.Read(t.Context(), 0, positions)
		if err != nil {
			return false
		}
		return len(batches) == 1 && len(batches[0].Entries) == 1 && batches[0].Entries[0].ID == next
	})
}

// A server that forgot the scripts is taught them again, and nothing is stored
// twice by that.
func TestScriptsAreTaughtAgain(t *testing.T) {
	r := newRig(t, nil)
	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	first := r.try(t.Context(), "a", once)
	r.redis.Do("SCRIPT", "FLUSH")
	again := r.try(t.Context(), "a", once)
	if first.Err != nil || again.Err != nil || !again.Repeated || again.IDs[0] != first.IDs[0] {
		t.Errorf("first %+v, after SCRIPT FLUSH %+v", first, again)
	}
	r.redis.Do("SCRIPT", "FLUSH")
	r.want("verdict", first.IDs[0], "a", "")
}

// An idempotency key is worth what the log holds: with the entry gone, by
// whatever hand, it is free for another body.
func TestOnceAfterARemoval(t *testing.T) {
	r := newRig(t, nil)
	once := func(fingerprint string) *eventlog.Once {
		return &eventlog.Once{Scope: "s", Key: "k", Fingerprint: fingerprint}
	}
	first := r.try(t.Context(), "a", once("f"))
	if res := r.try(t.Context(), "a", once("other")); !errors.Is(res.Err, eventlog.ErrConflict) {
		t.Errorf("another body: %v", res.Err)
	}
	r.redis.Do("XDEL", stream0, first.IDs[0].String())
	second := r.try(t.Context(), "a", once("other"))
	if second.Err != nil || second.Repeated || !first.IDs[0].Less(second.IDs[0]) {
		t.Errorf("another body after the entry was removed: %+v", second)
	}
	if again := r.try(t.Context(), "a", once("other")); !again.Repeated || again.IDs[0] != second.IDs[0] {
		t.Errorf("and once more: %+v", again)
	}
}

// A frozen server keeps its connections and answers nothing.
func TestFrozenServer(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.BlockTime = 100 * time.Millisecond
		o.CallTimeout = 300 * time.Millisecond
	})
	position := r.app("a")
	positions := append([]event.ID{position}, make([]event.ID, r.Shards()-1)...)
	r.redis.Stop()
	within := func(what string, most time.Duration, call func() error) {
		t.Helper()
		began := time.Now()
		if err := call(); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("%s on a frozen server: %v", what, err)
		}
		if took := time.Since(began); took > most {
			t.Errorf("%s on a frozen server took %v, allowed are %v", what, took, most)
		}
	}
	const slack = 20 * time.Second // for a busy machine
	within("Read", r.opts.BlockTime+r.opts.CallTimeout+slack, func() error {
		_, err := r.Read(context.Background(), 0, positions)
		return err
	})
	within("Append without a deadline", r.opts.CallTimeout+slack, func() error {
		return r.try(context.Background(), "a", nil).Err
	})
	within("Append with a deadline", 50*time.Millisecond+slack, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		return r.try(ctx, "a", nil).Err
	})
	within("Judge", r.opts.CallTimeout+slack, func() error {
		_, _, err := r.Judge(context.Background(), 0, []eventlog.Question{{Cursor: position}})
		return err
	})
	r.opts.dialTimeout = dialTimeout
	within("Open", r.opts.CallTimeout+2*dialTimeout+slack, func() error {
		_, err := Open(context.Background(), r.opts)
		return err
	})
	r.redis.Cont()
	r.back()
	r.app("b")
	r.eventually(func() bool {
		batches, err := r.Read(context.Background(), 0, positions)
		return err == nil && len(batches) == 1
	})
}

// Close ends what waits, at once.
func TestCloseWhileFrozen(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CallTimeout = time.Minute })
	r.redis.Stop()
	answered := make(chan error, 2)
	go func() {
		_, err := r.Read(context.Background(), 0, make([]event.ID, r.Shards()))
		answered <- err
	}()
	go func() { answered <- r.try(context.Background(), "a", nil).Err }()
	began := time.Now()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-answered; !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("a call that Close ended answers %v", err)
		}
	}
	if took := time.Since(began); took > r.opts.CallTimeout/2 {
		t.Errorf("Close took %v", took)
	}
	r.redis.Cont()
}
