package redislog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// replica starts a replica of the rig's server.
func (r *rig) replica(opts ...testkit.RedisOption) *testkit.Redis {
	r.Helper()
	s := testkit.StartRedis(r.TB, opts...)
	s.Follow(r.redis)
	r.eventually(func() bool { return strings.Contains(r.redis.Info("replication", "slave0"), "state=online") })
	return s
}

func TestStoredMeansReplicated(t *testing.T) {
	r := newRig(t, nil)
	replica := r.replica()
	opts := r.opts
	opts.Replicas, opts.replicaWait = 1, opts.CallTimeout
	r.Log = open(t, opts)
	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	plain, first := r.app("a"), r.try(t.Context(), "a", once)
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	opts.replicaWait, opts.CallTimeout = 0, time.Minute
	r.Log = open(t, opts)
	replica.Stop()
	wantRefused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, eventlog.ErrNotReplicated) || !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("%s with a frozen replica: %v", what, err)
		}
	}
	began := time.Now()
	res := r.try(t.Context(), "b", nil)
	wantRefused("Append", res.Err)
	if took := time.Since(began); !res.IDs[0].IsZero() || took > opts.CallTimeout/2 {
		t.Errorf("it claims %v after %v", res.IDs, took)
	}
	other := &eventlog.Once{Scope: "s", Key: "other", Fingerprint: "f"}
	for range 2 { // it stands on the primary now, and that is not enough
		wantRefused("idempotent Append", r.try(t.Context(), "c", other).Err)
	}
	wantRefused("the repeat of what was replicated", r.try(t.Context(), "a", once).Err)
	_, err := r.Control(t.Context(), 0, eventlog.Control{Kind: eventlog.Revoke, Device: "a"})
	wantRefused("Control", err)
	_, err = r.Claim(t.Context(), 0, "name", time.Minute)
	wantRefused("Claim", err)
	r.want("verdicts go on", plain, "a", "")

	replica.Cont()
	var again eventlog.Result
	r.eventually(func() bool {
		again = r.try(t.Context(), "c", other)
		return again.Err == nil
	})
	if !again.Repeated {
		t.Errorf("repeated when the replica is back: %+v", again)
	}
	if n := r.redis.Do("XLEN", stream0); n != int64(5) { // plain, first, b, c, the order
		t.Errorf("%v entries, want five", n)
	}
}

func TestOneWaitForAllOfARound(t *testing.T) {
	r := newRig(t, nil)
	r.replica()
	opts := r.opts
	opts.Replicas, opts.replicaWait = 1, opts.CallTimeout
	r.Log = open(t, opts)
	r.app("a")
	r.redis.Stop()
	results := []<-chan eventlog.Result{r.begin(t.Context(), "first", nil)}
	r.gathering(0)
	for range 20 {
		results = append(results, r.begin(t.Context(), "d", nil))
	}
	r.gathering(20)
	before := "cmdstat_wait"
	r.redis.Cont()
	for _, done := range results {
		if res := <-done; res.Err != nil {
			t.Error(res.Err)
		}
	}
	if calls := r.redis.Info("commandstats", before); calls == "" || len(calls) < 8 || calls[:8] != "calls=3," {
		t.Errorf("WAIT: %q, want three calls", calls)
	}
}

// appointed reads until a replica is read.
func (r *rig) appointed() {
	r.Helper()
	r.eventually(func() bool {
		_, err := r.Read(context.Background(), 0, make([]event.ID, r.Shards()))
		return err == nil && r.groups[0].tail.last.replica()
	})
}

// reads1 reads until an entry has come, and says whether the replica was read.
func (r *rig) reads1(position event.ID) (event.ID, bool) {
	r.Helper()
	positions := make([]event.ID, r.Shards())
	positions[0] = position
	for attempt := 0; ; attempt++ {
		batches, err := r.Read(context.Background(), 0, positions)
		if err != nil && !errors.Is(err, eventlog.ErrUnavailable) || attempt > 100 {
			r.Fatalf("Read: %v", err)
		}
		if len(batches) == 1 {
			return batches[0].Entries[0].ID, r.groups[0].tail.last.replica()
		}
	}
}

func TestTailReadsAReplica(t *testing.T) {
	r := newRig(t, nil)
	replica := r.replica()
	opts := r.opts
	opts.ReadReplica = true
	r.Log = open(t, opts)
	before := r.app("before")
	r.appointed()
	r.redis.Do("CONFIG", "RESETSTAT")
	first := r.app("a")
	if got, standin := r.reads1(before); got != first || !standin {
		t.Errorf("read %s, from a replica: %v; want %s from it", got, standin, first)
	}
	if calls := r.redis.Info("commandstats", "cmdstat_xread"); calls != "" {
		t.Errorf("the primary was read: %s", calls)
	}
	// A replica whose link is down is told by itself.
	r.redis.CutReplicas(replica)
	second := r.app("b")
	if got, standin := r.reads1(first); got != second || standin {
		t.Errorf("read %s, from a replica: %v; want %s from the primary", got, standin, second)
	}
}

// TestReplicaBehind: a replica that is frozen, or whose link stands and brings
// nothing, is left for the primary.
func TestReplicaBehind(t *testing.T) {
	for name, fault := range map[string]func(primary, replica *testkit.Redis){
		"frozen": func(_, replica *testkit.Redis) { replica.Stop() },
		"killed": func(_, replica *testkit.Redis) { replica.Kill9() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.BlockTime = time.Minute })
			replica := r.replica()
			opts := r.opts
			opts.ReadReplica = true
			r.Log = open(t, opts)
			first := r.app("a")
			r.appointed()
			fault(r.redis, replica)
			next := r.app("b")
			done := make(chan event.ID, 1)
			go func() {
				got, _ := r.reads1(first)
				done <- got
			}()
			began := time.Now()
			for {
				r.inspect(first) // as the watchdog does
				select {
				case got := <-done:
					if got != next {
						t.Errorf("read %s, want %s", got, next)
					}
					t.Logf("after %v", time.Since(began))
					return
				case <-time.After(100 * time.Millisecond):
				}
				if time.Since(began) > replicaPatience+30*time.Second {
					t.Fatal("the tail waits for the replica")
				}
			}
		})
	}
}

// TestReplicaOfAnotherPast: a replica that follows somebody else now is not
// believed, even if its link is up.
func TestReplicaOfAnotherPast(t *testing.T) {
	r := newRig(t, nil)
	replica := r.replica()
	opts := r.opts
	opts.ReadReplica = true
	r.Log = open(t, opts)
	first := r.app("a")
	r.appointed()
	other := testkit.StartRedis(t)
	xadd(t, other, stream0, event.ID{Ms: first.Ms, Seq: first.Seq + 7}.String(), "dev", "x", "type", "t", "payload", "other past")
	replica.Follow(other)
	next := r.app("b")
	if got, standin := r.reads1(first); got != next || standin {
		t.Errorf("read %s, from a replica: %v; want %s from the primary", got, standin, next)
	}
}
