package redislog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// through has the rig's log speak to its server through a proxy.
func (r *rig) through() *testkit.Proxy {
	r.Helper()
	proxy := testkit.StartProxy(r.TB, r.redis.Addr())
	r.opts.URL = "redis://" + proxy.Addr()
	r.Log = open(r.TB, r.opts)
	return proxy
}

// three is a batch of three events for one device, the last one perhaps for all,
// with another's in between; keyed says which of them have an idempotency key.
func three(round string, keyed ...bool) []eventlog.Append {
	var batch []eventlog.Append
	for i := range keyed {
		a := eventlog.Append{Shard: shardAt, Events: []event.Event{{Target: "a", Type: "t", Payload: fmt.Sprint(round, " ", i)}}}
		if i == 2 && strings.Contains(round, "all") {
			a.Events[0].Target = event.Broadcast
		}
		if keyed[i] {
			a.Once = &eventlog.Once{Scope: "s", Key: a.Events[0].Payload, Fingerprint: "f"}
		}
		batch = append(batch, a, eventlog.Append{Shard: shardAt + 1, Events: []event.Event{{Target: "other", Type: "t", Payload: "p"}}})
	}
	return batch
}

// payloads are the events of shard 0, in order, but for those of before.
func (r *rig) payloads(of string) (found []string) {
	r.Helper()
	page, err := r.Range(r.Context(), shardAt, event.ID{}, event.MaxID, 1<<20)
	if err != nil {
		r.Fatal(err)
	}
	for i := range page.Entries {
		if p := page.Entries[i].Event.Payload; strings.HasPrefix(p, of+" ") {
			found = append(found, p)
		}
	}
	return found
}

// TestABatchIsRefusedWhole: a server that refuses a batch's first event of a
// device and would take the later ones takes none of them: the publisher repeats
// the first, and it would come behind the others. The same holds for one that
// refuses the last.
func TestABatchIsRefusedWhole(t *testing.T) {
	t.Parallel()
	kinds := map[string][]bool{"plain": {false, false, false}, "keyed": {true, true, true}, "mixed": {false, true, false}}
	for name, keyed := range kinds {
		for _, known := range []bool{true, false} {
			whom := map[bool]string{true: "device", false: "all"}[known]
			t.Run(fmt.Sprint(name, "/script known ", known), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, nil)
				proxy := r.through()
				word := map[string]string{"plain": "XADD", "keyed": "EVALSHA", "mixed": "EVALSHA"}[name]
				second := 2
				if name == "mixed" {
					second = 1
				}
				refuse := func(yes bool) { r.redis.Do("CONFIG", "SET", "maxmemory", map[bool]string{true: "1", false: "0"}[yes]) }
				for round, fault := range []struct {
					before string
					nth    int
					heard  string
					then   bool
					why    error
				}{
					{before: "nothing"},
					{word, second, "OOM", false, eventlog.ErrFull},
					{"EXEC", 1, "QUEUED", true, eventlog.ErrFull},
				} {
					if !known {
						r.redis.Do("SCRIPT", "FLUSH")
					}
					var hit atomic.Bool
					if fault.nth > 0 {
						refuse(!fault.then)
						proxy.Part(fault.before, fault.nth, fault.heard, func() { refuse(fault.then); hit.Store(true) })
					}
					name := fmt.Sprint(whom, " ", round)
					results := r.Append(t.Context(), three(name, keyed...))
					refuse(false)
					if hit.Load() != (fault.nth > 0) {
						t.Fatalf("%s: the fault didn't strike", name)
					}
					r.whole(name, results, fault.why)
				}
			})
		}
	}
}

// whole: of the first shard's events all were stored, in order; or none, and why.
func (r *rig) whole(round string, results []eventlog.Result, why error) {
	r.Helper()
	stored := r.payloads(round)
	want := []string{round + " 0", round + " 1", round + " 2"}
	if why != nil {
		want = nil
	}
	if !slices.Equal(stored, want) {
		r.Errorf("%s: stored %q, want %q", round, stored, want)
	}
	for i := 0; i < len(results); i += 2 {
		if res := results[i]; !errors.Is(res.Err, why) || !res.IDs[0].IsZero() != (why == nil) {
			r.Errorf("%s, append %d: %+v", round, i, res)
		}
	}
}

// TestABatchInAClusterIsRefusedWhole: a member that finds its cluster down for a
// batch's first event, and well for the next one.
func TestABatchInAClusterIsRefusedWhole(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 1, 0)
	server := c.Servers[0]
	proxy := testkit.StartProxy(t, server.Addr())
	_, port, _ := strings.Cut(proxy.Addr(), ":")
	server.Do("CONFIG", "SET", "cluster-announce-port", port)
	opts := optionsAt(t, "redis+cluster://"+proxy.Addr())
	opts.Groups = 1
	r := &rig{TB: t, redis: server, opts: opts, Log: open(t, opts)}
	spare := fmt.Sprint((slotOf(r.byShard[shardAt].stream) + 1) % slots)
	server.Do("CLUSTER", "DELSLOTS", spare)
	testkit.Eventually(t, "the cluster is down", func() bool { return c.State(server) == "fail" })
	struck := make(chan bool, 1)
	proxy.Part("XADD", 2, "CLUSTERDOWN", func() {
		server.Do("CLUSTER", "ADDSLOTS", spare)
		testkit.Eventually(t, "the cluster is well", func() bool { return c.State(server) == "ok" })
		struck <- true
	})
	results := r.Append(t.Context(), three("it", false, false, false))
	if len(struck) == 0 {
		t.Fatal("the fault didn't strike")
	}
	if stored := r.payloads("it"); len(stored) != 0 {
		t.Errorf("%q were stored", stored)
	}
	for i := 0; i < len(results); i += 2 {
		if res := results[i]; !errors.Is(res.Err, eventlog.ErrUnavailable) || !strings.Contains(res.Err.Error(), "CLUSTERDOWN") {
			t.Errorf("append %d: %+v", i, res)
		}
	}
	for i, res := range r.Append(t.Context(), three("again", true, true, true)) {
		if res.Err != nil {
			t.Errorf("with nothing in its way, append %d: %v", i, res.Err)
		}
	}
}

// TestAUserWithoutTransactions: events are stored as they come, and the log says
// what is missing, once.
func TestAUserWithoutTransactions(t *testing.T) {
	t.Parallel()
	for _, without := range []string{"-multi", "-exec", "-multi -exec"} {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&said, nil)) },
				testkit.RedisUser("gateway", "s3cret", leastRules+" "+without))
			for round := range 2 {
				for _, keyed := range [][]bool{{false, false, false}, {true, true, true}, {true, false, true}} {
					name := fmt.Sprint(round, keyed)
					results := r.Append(t.Context(), three(name, keyed...))
					if without == "-exec" { // nothing can be stored then
						r.whole(name, results, eventlog.ErrUnavailable)
						continue
					}
					r.whole(name, results, nil)
				}
			}
			_ = r.Close() // it says nothing more
			want := map[bool]int{true: 0, false: 1}[without == "-exec"]
			if n := strings.Count(said.String(), "+multi and +exec"); n != want {
				t.Errorf("said %d times, want %d:\n%s", n, want, said.String())
			}
		})
	}
}

// TestWhatIsATransaction: whatever could overtake, and nothing else, which would
// cost for nothing.
func TestWhatIsATransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	begun := func() int {
		n := 0
		_, _ = fmt.Sscanf(r.redis.Info("commandstats", "cmdstat_multi"), "calls=%d", &n)
		return n
	}
	many := slices.Repeat([]string{"a"}, mostCompared)
	for i := range many {
		many[i] = fmt.Sprint("device-", i)
	}
	for name, c := range map[string]struct {
		targets []string // of shard 0
		want    int
	}{
		"one":                          {[]string{"a"}, 0},
		"different devices":            {[]string{"a", "b", "c"}, 0},
		"one device twice":             {[]string{"a", "b", "a"}, 1},
		"a broadcast":                  {[]string{"*"}, 0},
		"a group among others":         {[]string{"a", "@g"}, 1},
		"as many as are compared":      {many, 0},
		"more than are compared":       {append(slices.Clone(many), "x"), 1},
		"different, and one elsewhere": {[]string{"a", "other"}, 0},
	} {
		var batch []eventlog.Append
		for _, target := range c.targets {
			a := eventlog.Append{Shard: shardAt, Events: []event.Event{{Target: target, Type: "t", Payload: "p"}}}
			if target == "other" {
				a.Shard++
			}
			batch = append(batch, a)
		}
		before := begun()
		for i, res := range r.Append(t.Context(), batch) {
			if res.Err != nil {
				t.Errorf("%s, append %d: %v", name, i, res.Err)
			}
		}
		if n := begun() - before; n != c.want {
			t.Errorf("%s: %d transactions, want %d", name, n, c.want)
		}
	}
}
