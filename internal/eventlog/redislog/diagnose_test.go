package redislog

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// sound is a server that nothing is wrong with.
func sound(more ...string) testkit.RedisOption {
	return testkit.RedisConfig(append([]string{"appendonly yes", "maxmemory 1gb"}, more...)...)
}

// diagnosed is the codes of what is found, problems with an exclamation mark.
func diagnosed(t *testing.T, opts Options) (codes []string, found []Finding) {
	t.Helper()
	_, found, err := Diagnose(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		code := f.Code
		if f.Problem {
			code += "!"
		}
		codes = append(codes, code)
		if f.What == "" || f.Do == "" || strings.Contains(fmt.Sprint(f), "s3cret") {
			t.Errorf("%+v", f)
		}
	}
	slices.Sort(codes)
	return codes, found
}

// TestDiagnose: real servers, each of them wrong in one way.
func TestDiagnose(t *testing.T) {
	with := func(change func(o *Options)) func(*testing.T, *testkit.Redis, *Options) {
		return func(_ *testing.T, _ *testkit.Redis, o *Options) { change(o) }
	}
	as := func(rules string) testkit.RedisOption { return testkit.RedisUser("gateway", "s3cret", rules) }
	for name, c := range map[string]struct {
		server testkit.RedisOption
		act    func(*testing.T, *testkit.Redis, *Options)
		want   string
	}{
		"sound":          {sound(), nil, ""},
		"eviction":       {sound("maxmemory-policy allkeys-lru"), nil, "eviction!"},
		"eviction meant": {sound("maxmemory-policy allkeys-lru"), with(func(o *Options) { o.AllowEviction = true }), "eviction"},
		"nothing kept":   {testkit.RedisConfig("maxmemory 1gb"), nil, "persistence"},
		"snapshots only": {testkit.RedisConfig("maxmemory 1gb", "save 60 1"), nil, "persistence"},
		"no maximum":     {testkit.RedisConfig("appendonly yes"), nil, "no-maxmemory"},
		"full":           {sound("maxmemory 500kb"), nil, "memory!"},
		"no replica":     {sound(), with(func(o *Options) { o.ReadReplica = true }), "no-replica"},
		"too few":        {sound(), with(func(o *Options) { o.Replicas = 2 }), "no-replica!"},
		"timeout":        {sound("timeout 60"), with(func(o *Options) { o.BlockTime = time.Minute }), "timeout"},
		"output":         {sound("client-output-buffer-limit normal 1mb 0 0"), nil, "output-limit"},
		"away":           {sound(), func(_ *testing.T, r *testkit.Redis, _ *Options) { r.Kill9() }, "unreachable!"},
		"layout": {sound(), func(t *testing.T, _ *testkit.Redis, o *Options) {
			open(t, *o)
			o.Shards = 8
		}, "layout!"},
		"the format before": {sound(), func(t *testing.T, _ *testkit.Redis, o *Options) {
			open(t, *o)
			o.format = formatVersion + 1
		}, ""},
		"a replica": {sound(), func(t *testing.T, r *testkit.Redis, _ *Options) {
			r.Follow(testkit.StartRedis(t))
		}, "is-a-replica!"},
		"member of a cluster": {sound("cluster-enabled yes"), nil, "topology!"},
		"the least user":      {testkit.RedisOption(func(r *testkit.Redis) { sound()(r); as(leastRules)(r) }), nil, "config-hidden"},
		"a command missing":   {func(r *testkit.Redis) { sound()(r); as(leastRules + " -xtrim -script")(r) }, nil, "config-hidden permission!"},
		"no transactions":     {func(r *testkit.Redis) { sound()(r); as(leastRules + " -multi -exec")(r) }, nil, "config-hidden permission! +multi +exec"},
		"another prefix":      {func(r *testkit.Redis) { sound()(r); as("~other:* +@all")(r) }, nil, "permission!"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testkit.StartRedis(t, c.server)
			opts := testOptions(t, r)
			if c.act != nil {
				c.act(t, r, &opts)
			}
			var before any
			if c.want != "unreachable!" {
				before = r.Do("DBSIZE")
			}
			codes, found := diagnosed(t, opts)
			want, missing, _ := strings.Cut(c.want, " +")
			if got := strings.Join(codes, " "); got != want || !strings.Contains(fmt.Sprint(found), missing) {
				t.Errorf("found %q, want %q: %+v", got, c.want, found)
			}
			if before != nil && r.Do("DBSIZE") != before {
				t.Error("something was written")
			}
		})
	}
}

// TestDiagnoseThroughLies: what no server here can be made to be, it is made to say.
func TestDiagnoseThroughLies(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t, sound())
	major := "redis_version:" + r.Info("server", "redis_version")[:1]
	for want, lie := range map[string][2]string{
		"version!": {major, "redis_version:6"},
		"clock":    {"*2\r\n$10\r\n1", "*2\r\n$10\r\n2"}, // of TIME
	} {
		proxy := testkit.StartProxy(t, r.Addr())
		proxy.Rewrite(lie[0], lie[1])
		opts := optionsAt(t, "redis://"+proxy.Addr())
		codes, found := diagnosed(t, opts)
		if strings.Join(codes, " ") != want {
			t.Errorf("found %q, want %q: %+v", codes, want, found)
		}
		if want == "clock" && !strings.Contains(found[0].What, "ahead of this machine's") {
			t.Errorf("%+v", found)
		}
		if want == "version!" {
			if _, err := Open(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "7.0 or newer") {
				t.Errorf("Open: %v", err)
			}
		}
	}
}

// TestClocksApart: an answer that took long says little of a clock.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead, give time.Duration
		want        int
	}{
		"near":                  {time.Second, 0, 0},
		"apart":                 {1010 * time.Millisecond, 0, 1},
		"asked over a slow way": {1900 * time.Millisecond, time.Second, 0},
		"apart all the same":    {2100 * time.Millisecond, time.Second, 1},
	} {
		d := &diagnosis{clocks: []clock{{"a", 0, 0}, {"b", -c.ahead, c.give}}}
		if d.compareClocks(); len(d.found) != c.want {
			t.Errorf("%s: %+v", name, d.found)
		}
	}
}

// TestDiagnoseReplicaBehind: a replica confirms, and lacks much.
func TestDiagnoseReplicaBehind(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t, sound("client-output-buffer-limit replica 0 0 0"))
	proxy := testkit.StartProxy(t, r.Addr())
	replica := testkit.StartRedis(t)
	host, port, _ := net.SplitHostPort(proxy.Addr())
	replica.Do("REPLICAOF", host, port)
	replica.AwaitLink("up")
	r.AwaitReplica()
	proxy.Slow(0, 64<<10) // what the replica confirms comes through
	for range 10 {
		r.Do("SET", "other", strings.Repeat("x", 4<<20))
	}
	opts := testOptions(t, r)
	opts.ReadReplica = true
	codes, found := diagnosed(t, opts)
	if strings.Join(codes, " ") != FoundLag || !strings.Contains(found[0].What, "MiB behind") {
		t.Errorf("%+v", found)
	}
}

// TestDiagnosePermissionsOfACluster: what a script is refused would come up only
// at the first failover.
func TestDiagnosePermissionsOfACluster(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 1, 0, sound(), testkit.RedisUser("gateway", "s3cret", leastRules+" +cluster|slots +cluster|info +cluster|myid"))
	codes, found := diagnosed(t, optionsAt(t, c.URL()))
	if !slices.Contains(codes, "permission!") {
		t.Fatalf("%+v", found)
	}
	for _, f := range found {
		if f.Code == FoundPermission && !strings.Contains(f.Do, "~pos-ev:* +asking +cluster|nodes; docs/operate/redis.md#users") {
			t.Errorf("to do: %s", f.Do)
		}
	}
}

func TestDiagnoseReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, sound())
	replica := r.replica()
	opts := r.opts
	opts.Replicas, opts.ReadReplica = 1, true
	if codes, found := diagnosed(t, opts); len(codes) != 0 {
		t.Errorf("%+v", found)
	}
	replica.Stop()
	r.eventually(func() bool {
		_, lag, _ := strings.Cut(r.redis.Info("replication", "slave0"), "lag=")
		seconds, err := strconv.Atoi(lag)
		return err == nil && seconds > int(mostLag/time.Second)
	})
	if codes, found := diagnosed(t, opts); strings.Join(codes, " ") != "no-replica! replica-lag" {
		t.Errorf("%+v", found)
	}
	replica.Cont()
}

func TestDiagnoseSentinels(t *testing.T) {
	t.Parallel()
	p := testkit.StartPair(t, sound())
	opts := optionsAt(t, p.URL())
	if codes, found := diagnosed(t, opts); len(codes) != 0 {
		t.Errorf("%+v", found)
	}
	p.Sentinels[2].Kill9()
	if codes, found := diagnosed(t, opts); strings.Join(codes, " ") != FoundSentinels {
		t.Errorf("%+v", found)
	}
	stray := testkit.StartRedis(t, sound())
	host, port := stray.HostPort()
	p.Sentinels[1].Do("SENTINEL", "REMOVE", testkit.MasterSet)
	p.Sentinels[1].Do("SENTINEL", "MONITOR", testkit.MasterSet, host, port, "2")
	codes, found := diagnosed(t, opts)
	if !slices.Contains(codes, FoundSentinels+"!") {
		t.Errorf("%+v", found)
	}
}

func TestDiagnoseCluster(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, 1, sound())
	opts := optionsAt(t, c.URL())
	if codes, found := diagnosed(t, opts); len(codes) != 0 {
		t.Errorf("%+v", found)
	}
	master := c.MasterOf(0)
	master.Do("CLUSTER", "DELSLOTS", "0")
	testkit.Eventually(t, "an unserved slot is found", func() bool {
		codes, _ := diagnosed(t, opts)
		return slices.Contains(codes, FoundCoverage+"!")
	})
}
