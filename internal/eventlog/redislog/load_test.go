package redislog

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// loadsOf asks within the test's patience.
func loadsOf(l interface{ Loads(context.Context) []Load }) []Load {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return l.Loads(ctx)
}

// TestLoads: one server, as it really fills and works, and after a restart.
func TestLoads(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, testkit.RedisConfig("maxmemory 64mb", "appendonly yes"))
	before := loadsOf(r)
	if len(before) != 1 || before[0].Err != nil {
		t.Fatalf("loads of one server: %+v", before)
	}
	b := before[0]
	if b.Server != r.redis.Addr() || b.Most != 64<<20 || b.Policy != "noeviction" || b.Used < 100<<10 || b.System < b.Most || b.Run == "" {
		t.Errorf("%+v", b)
	}
	r.redis.Do("SET", "large", strings.Repeat("x", 8<<20))
	r.redis.Do("GET", "large")
	after := loadsOf(r)[0]
	if grown := after.Used - b.Used; grown < 8<<20 || grown > 20<<20 {
		t.Errorf("8 MiB were stored, and the use has grown by %d", grown)
	}
	if sent := after.Output - b.Output; sent < 8<<20 || sent > 9<<20 || after.Commands-b.Commands < 2 {
		t.Errorf("8 MiB were read: %d bytes sent, %d commands", sent, after.Commands-b.Commands)
	}
	r.redis.Restart()
	r.eventually(func() bool { return loadsOf(r)[0].Err == nil })
	if again := loadsOf(r)[0]; again.Run == after.Run || again.Output >= after.Output || again.Used < 8<<20 {
		t.Errorf("after a restart: %+v, before: %+v", again, after)
	}
}

// TestLoadsOfEveryTopology: those that serve a part of the log, and no replica.
func TestLoadsOfEveryTopology(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start func(testing.TB) *site
		want  int
	}{
		"list": {startList, 3}, "sentinel": {startSentinel, 1}, "cluster": {startCluster, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := c.start(t)
			opts := optionsAt(t, at.url)
			opts.Shards = 16
			servers, err := OpenServers(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer servers.Close()
			loads := loadsOf(servers)
			for _, l := range loads {
				if l.Err != nil || l.Used == 0 {
					t.Errorf("%+v", l)
				}
			}
			if len(loads) != c.want || !slices.IsSortedFunc(loads, func(a, b Load) int { return strings.Compare(a.Server, b.Server) }) {
				t.Errorf("%d servers, want %d, by name: %+v", len(loads), c.want, loads)
			}
			if n := at.server(&shard{}).Do("DBSIZE"); n != int64(0) {
				t.Errorf("whoever only looks has made %v keys", n)
			}
		})
	}
}

// TestLoadsFollowAFailover: the new primary is asked, and the old one no more.
func TestLoadsFollowAFailover(t *testing.T) {
	t.Parallel()
	p := testkit.StartPair(t)
	servers, err := OpenServers(t.Context(), optionsAt(t, p.URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	next := p.Replica()
	p.Failover()
	testkit.Eventually(t, "the new primary is asked, and nobody else", func() bool {
		loads := loadsOf(servers)
		return len(loads) == 1 && loads[0].Server == next.Addr() && loads[0].Err == nil
	})
}

// FuzzReadLoad: whatever a server says, it is a load that can be, or an error.
func FuzzReadLoad(f *testing.F) {
	f.Add("run_id:a\r\nloading:0\r\nused_memory:9\r\nmaxmemory:0\r\ntotal_system_memory:9\r\nmem_not_counted_for_evict:1\r\n" +
		"maxmemory_policy:p\r\ntotal_net_output_bytes:7\r\ntotal_commands_processed:8\r\nrole:master\r\n")
	f.Add("used_memory:-1")
	f.Fuzz(func(t *testing.T, text string) {
		l := readLoad("s", text, time.Time{})
		if bad := l.Used == 0 || l.Run == "" || l.Policy == ""; (l.Err == nil) == bad {
			t.Errorf("%+v", l)
		}
	})
}

// TestLoadsWhileOneIsAway: the others are known, and so is who isn't.
func TestLoadsWhileOneIsAway(t *testing.T) {
	t.Parallel()
	dead := testkit.StartRedis(t, testkit.RedisUser("gateway", "s3cret", "~* &* +@all"))
	frozen, well := testkit.StartRedis(t), testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, frozen.Addr())
	opts := optionsAt(t, dead.URL()+",redis://"+proxy.Addr()+","+well.URL())
	opts.CallTimeout = 2 * time.Minute // less than the caller's time, it would hide that this isn't kept
	l := open(t, opts)
	dead.Kill9()
	proxy.Stall()
	began := time.Now()
	var loads []Load
	for limit := 300 * time.Millisecond; ; limit *= 2 { // the machine may be too busy for the one that is well
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		loads = l.Loads(ctx)
		cancel()
		if limit > 20*time.Second || slices.ContainsFunc(loads, func(one Load) bool { return one.Err == nil }) {
			break
		}
	}
	if took := time.Since(began); took > opts.CallTimeout {
		t.Errorf("it took %v", took)
	}
	for _, one := range loads {
		if (one.Err == nil) != (one.Server == well.Addr()) || one.Err != nil && (one.Used != 0 || strings.Contains(one.Err.Error(), "s3cret")) {
			t.Errorf("%+v", one)
		}
	}
	if len(loads) != 3 {
		t.Errorf("%d of 3 servers", len(loads))
	}
	proxy.Resume()
}

// TestLoadsThroughLies: what can't be is an error.
func TestLoadsThroughLies(t *testing.T) {
	t.Parallel()
	good := strings.Join([]string{
		"run_id:abc", "loading:0", "used_memory:2000", "maxmemory:4000", "total_system_memory:8000", "mem_not_counted_for_evict:500",
		"maxmemory_policy:noeviction", "total_net_output_bytes:7", "total_commands_processed:8", "role:master", "",
	}, "\r\n")
	if l := readLoad("s", good, time.Now()); l.Err != nil || l.Used != 1500 || l.Most != 4000 || l.Output != 7 || l.Commands != 8 {
		t.Fatalf("%+v", l)
	}
	for from, to := range map[string]string{
		"used_memory:2000":              "used_memory:0",
		"maxmemory:4000":                "maxmemory:-1",
		"total_system_memory:8000":      "total_system_memory:nan",
		"mem_not_counted_for_evict:500": "mem_not_counted_for_evict:2000",
		"maxmemory_policy:noeviction":   "maxmemory_policy:",
		"total_net_output_bytes:7":      "total_net_output_bytes:1e9",
		"total_commands_processed:8":    "another_field:8",
		"role:master":                   "role:slave",
		"loading:0":                     "loading:1",
		"run_id:abc":                    "",
	} {
		if l := readLoad("s", strings.Replace(good, from, to, 1), time.Now()); l.Err == nil || l.Used != 0 || l.Most != 0 {
			t.Errorf("%s: %+v", to, l)
		}
	}
	if l := readLoad("s", "", time.Now()); l.Err == nil {
		t.Errorf("nothing: %+v", l)
	}
}
