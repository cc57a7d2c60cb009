package probes

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"downlink/internal/eventlog/redislog"
	"downlink/internal/governor"
	"downlink/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func redisOptions(tb testing.TB, url string) redislog.Options {
	return redislog.Options{
		URL: url, Shards: 4, Window: time.Hour, CallTimeout: time.Minute,
		Logger:  slog.New(slog.NewTextHandler(tb.Output(), nil)),
		Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
	}
}

func openServers(t *testing.T, urls ...string) *redislog.Servers {
	t.Helper()
	servers, err := redislog.OpenServers(t.Context(), redisOptions(t, strings.Join(urls, ",")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
	return servers
}

// read reads a signal within its own time limit, made longer for a busy machine.
func read(s governor.Signal) (governor.Reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*s.Timeout)
	defer cancel()
	return s.Probe.Read(ctx)
}

// readInTime is read, again if a busy machine made it late.
func readInTime(s governor.Signal, otherwise string) (got governor.Reading, err error) {
	for range 20 {
		got, err = read(s)
		if err == nil || strings.Contains(err.Error(), otherwise) || !strings.Contains(err.Error(), "deadline") {
			break
		}
	}
	return got, err
}

func wantError(t *testing.T, s governor.Signal, text string) {
	t.Helper()
	if got, err := readInTime(s, text); err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "s3cret") || got.Value != 0 {
		t.Errorf("%s: %+v, %v; want an error with %q", s.Probe.Name(), got, err, text)
	}
}

// within reads a signal and wants its value in a range.
func within(t *testing.T, s governor.Signal, least, most float64) governor.Reading {
	t.Helper()
	got, err := readInTime(s, "nothing else")
	if err != nil || got.None != "" || got.Value < least || got.Value > most {
		t.Errorf("%s: %+v, %v; want %v to %v", s.Probe.Name(), got, err, least, most)
	}
	return got
}

// TestRedisFills: a small server, filled until it refuses.
func TestRedisFills(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 24mb"))
	s := RedisMemory(openServers(t, redis.URL()), time.Minute, time.Second)
	empty := within(t, s, 0.01, 0.4)
	if empty.Of != redis.Addr() || !strings.HasSuffix(empty.Detail, "of 24 MiB; at the maximum it refuses events") || empty.Partial != "" {
		t.Errorf("%+v", empty)
	}
	piece := strings.Repeat("x", 64<<10)
	last := empty.Value
	for i := 1; ; i++ {
		if _, err := redis.Try("RPUSH", "filling", piece); err != nil {
			break
		}
		if i > 400 {
			t.Fatal("Redis refuses nothing")
		}
		if i%32 != 0 { // 2 MiB
			continue
		}
		got := within(t, s, last+0.05, 1)
		last = got.Value
	}
	within(t, s, 0.95, 1.05)
	if s.Settles() != time.Minute || s.Ripple != time.Second || s.Threshold != 0.8 {
		t.Errorf("%+v", s)
	}
	redis.Do("DEL", "filling")
	within(t, s, 0.01, 0.4)
	redis.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if got := within(t, s, 0.01, 0.4); !strings.Contains(got.Detail, "it deletes keys (maxmemory-policy allkeys-lru), and with them events") {
		t.Errorf("%+v", got)
	}
	redis.Do("CONFIG", "SET", "maxmemory", "0")
	if got, err := read(s); err != nil || !strings.Contains(got.None, "maxmemory isn't set") || !strings.Contains(got.None, redis.Addr()) {
		t.Errorf("without a maximum: %+v, %v", got, err)
	}
}

// TestSeveralServers: the fullest counts; one has no maximum; one goes away.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	small := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 16mb"))
	large := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 1gb"), testkit.RedisUser("gateway", "s3cret", "~* &* +@all"))
	free := testkit.StartRedis(t)
	s := RedisMemory(openServers(t, small.URL(), large.URL(), free.URL()), time.Minute, time.Second)
	for range 8 {
		small.Do("RPUSH", "k", strings.Repeat("x", 1<<20))
	}
	if got := within(t, s, 0.5, 0.9); got.Of != small.Addr() || !strings.Contains(got.Detail, free.Addr()+" has no maximum") || got.Partial != "" {
		t.Errorf("%+v", got)
	}
	large.Kill9()
	if got := within(t, s, 0.5, 0.9); got.Of != small.Addr() || !strings.Contains(got.Partial, large.Addr()) || strings.Contains(got.Partial, "s3cret") {
		t.Errorf("one is away, and it isn't said: %+v", got)
	}
	small.Kill9()
	wantError(t, s, "has no maximum, and")
	free.Kill9()
	wantError(t, s, free.Addr())
}

// TestFrozenRedis: the answer comes within the time limit, and is no value.
func TestFrozenRedis(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 64mb"))
	proxy := testkit.StartProxy(t, redis.Addr())
	servers := openServers(t, "redis://"+proxy.Addr())
	for _, s := range []governor.Signal{RedisMemory(servers, time.Minute, time.Second), RedisOutput(servers), RedisCommands(servers)} {
		_, _ = read(s)
		proxy.Stall()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		if got, err := s.Probe.Read(ctx); err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("%s: %+v, %v after %v", s.Probe.Name(), got, err, time.Since(began))
		}
		cancel()
		proxy.Resume()
	}
	s := RedisMemory(servers, time.Minute, time.Second)
	testkit.Eventually(t, "it answers again", func() bool { _, err := read(s); return err == nil })
}

// TestRedisThroughLies: a box in between that says what no Redis does.
func TestRedisThroughLies(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 64mb"))
	proxy := testkit.StartProxy(t, redis.Addr())
	s := RedisMemory(openServers(t, "redis://"+proxy.Addr()), time.Minute, time.Second)
	within(t, s, 0.001, 0.5)
	proxy.Rewrite("maxmemory:67108864", "maxmemory:-7108864")
	wantError(t, s, `its maxmemory is "-7108864"`)
	proxy.Rewrite("maxmemory:67108864", "maxmemory:67108864")
	proxy.Rewrite("role:master", "role:slave!")
	wantError(t, s, "is a replica")
}

// TestRates: what a server really sends and does in a second.
func TestRates(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	servers := openServers(t, redis.URL())
	output, commands := RedisOutput(servers), RedisCommands(servers)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := output.Probe.Read(ctx); err == nil || !strings.Contains(err.Error(), "two readings") {
		t.Errorf("in 50 ms: %+v, %v", got, err)
	}
	within(t, commands, 0, 1000) // the first reading takes its time
	pass(t, time.Now(), 600*time.Millisecond)
	began := time.Now()
	within(t, output, 0, 1<<20)
	within(t, commands, 0, 1000)
	testkit.Eventually(t, "two readings come too soon after each other", func() bool {
		_, err := read(output)
		return err != nil && strings.Contains(err.Error(), "was only")
	})
	redis.Do("SET", "k", strings.Repeat("x", 1<<20))
	for range 20 {
		redis.Do("GET", "k")
	}
	pass(t, time.Now(), 600*time.Millisecond)
	sent := within(t, output, 0, 20<<20/0.5)
	took := time.Since(began).Seconds()
	if sent.Of != redis.Addr() || sent.Value < 20<<20/took || sent.Partial != "" {
		t.Errorf("20 MiB in about %.1f s: %+v", took, sent)
	}
	within(t, commands, 20/time.Since(began).Seconds(), 2000)
	redis.Do("CONFIG", "RESETSTAT")
	pass(t, time.Now(), 600*time.Millisecond)
	wantError(t, output, "went back")
	pass(t, time.Now(), 600*time.Millisecond)
	within(t, output, 0, 1<<20)
	redis.Restart()
	testkit.Eventually(t, "the other process is noticed", func() bool {
		_, err := read(commands)
		return err != nil && strings.Contains(err.Error(), "started anew")
	})
}

// pass waits until so much time has passed since a moment: rates need it.
func pass(t *testing.T, since time.Time, d time.Duration) {
	t.Helper()
	testkit.Eventually(t, "time passes", func() bool { return time.Since(since) >= d })
}

// TestRatesOfSeveral: what was counted before a server was away is still good,
// unless it is too old; and one that isn't known yet makes the others a lower bound.
func TestRatesOfSeveral(t *testing.T) {
	t.Parallel()
	at := time.Now()
	load := func(server string, after time.Duration, run string, commands uint64) redislog.Load {
		return redislog.Load{Server: server, Run: run, Asked: at.Add(after), Commands: commands}
	}
	away := redislog.Load{Server: "a", Err: errors.New("a is away")}
	r := &rates{count: func(l *redislog.Load) uint64 { return l.Commands }, unit: "commands/s", before: map[string]counted{}}
	steps := []struct {
		loads       []redislog.Load
		value       float64
		of, partial string
		err         string
	}{
		{loads: nil, err: "no server is known"},
		{loads: []redislog.Load{load("a", 0, "1", 100)}, err: "take two readings"},
		{loads: []redislog.Load{load("a", 2*time.Second, "1", 300), load("b", 2*time.Second, "1", 5)}, value: 100, of: "a", partial: "of b take two"},
		{loads: []redislog.Load{load("a", 3*time.Second, "1", 300), load("b", 3*time.Second, "1", 15)}, value: 10, of: "b"},
		{loads: []redislog.Load{away, load("b", 4*time.Second, "1", 15)}, value: 0, of: "b", partial: "a is away"},
		{loads: []redislog.Load{load("a", 13*time.Second, "1", 1300)}, value: 100, of: "a"},
		{loads: []redislog.Load{load("b", 14*time.Second, "1", 15)}, err: "take two readings"}, // it had gone
		{loads: []redislog.Load{load("b", 2*time.Minute, "1", 15)}, err: "is 1m46s old"},
		{loads: []redislog.Load{load("b", 3*time.Minute, "2", 99)}, err: "started anew"},
		{loads: []redislog.Load{load("b", 3*time.Minute+time.Second, "2", 98)}, err: "went back"},
	}
	for i, s := range steps {
		got, err := r.read(s.loads)
		switch {
		case s.err != "":
			if err == nil || !strings.Contains(err.Error(), s.err) {
				t.Errorf("step %d: %+v, %v; want %q", i, got, err, s.err)
			}
		case err != nil || got.Value != s.value || got.Of != s.of || (got.Partial == "") != (s.partial == "") || !strings.Contains(got.Partial, s.partial):
			t.Errorf("step %d: %+v, %v; want %+v", i, got, err, s)
		}
	}
}

// halfFrozen is two servers, of which one answers at once, and one never.
type halfFrozen struct{ used uint64 }

func (h halfFrozen) Loads(ctx context.Context) []redislog.Load {
	<-ctx.Done()
	return []redislog.Load{
		{Server: "a:1", Run: "r", Asked: time.Now(), Used: h.used, Most: 100, Policy: "noeviction", Output: 7, Commands: 7},
		{Server: "b:1", Err: ctx.Err()},
	}
}

// A server that is frozen doesn't hide that another is full: its answer comes within
// the signal's time limit, after which a governor takes none any more.
func TestOneFrozenServerHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := halfFrozen{used: 95}
		for _, s := range []governor.Signal{RedisMemory(servers, time.Hour, time.Second), RedisOutput(servers), RedisCommands(servers)} {
			for n := range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
				r, err := s.Probe.Read(ctx)
				late := ctx.Err()
				cancel()
				time.Sleep(s.Period)                             //nolint:forbidigo // in a bubble
				if n == 0 && s.Probe.Name() != RedisMemoryName { // a rate takes two
					continue
				}
				if late != nil || err != nil || r.Of != "a:1" || r.Partial != "b:1: context deadline exceeded" {
					t.Errorf("%s: %+v, %v, %v", s.Probe.Name(), r, err, late)
				}
			}
		}
	})
}
