package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// freeze is how long Redis is frozen.
const freeze = 15 * time.Second

const (
	demoShard = "pos-ev:32" // the device "demo"
	resync    = `data: {"reason":"`
)

func publish(t *testing.T, g *testkit.Gateway, device, payload string) {
	t.Helper()
	status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json",
		fmt.Sprintf(`{"device":%q,"type":"t","text":%q}`, device, payload))
	if status != 200 {
		t.Fatalf("publishing %q: %d %s", payload, status, answer)
	}
}

// TestFrozenGateway: a gateway is frozen for longer than the window while
// another one sweeps. After it thaws exactly those are told who missed something.
func TestFrozenGateway(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	// What is published afterwards may be read so much later on a busy machine.
	short := args("--log", redis.URL(), "--window", "8s", "--sweep-interval", "200ms")
	a, b := program.StartGateway(t, short...), program.StartGateway(t, short...)
	missed := testkit.Open(t, a.Device+"/events?device=demo", "")
	missed.Until(resync)
	// In the same shard, and nothing comes for it.
	sibling := siblingOf("demo")
	spared := testkit.Open(t, a.Device+"/events?device="+sibling, "")
	spared.Until(resync)

	a.Stop()
	publish(t, b, "demo", "missed")
	testkit.Eventually(t, "the other gateway has swept", func() bool { return redis.Do("XLEN", demoShard) == int64(0) })
	a.Cont()

	if got := missed.Until(resync); !strings.Contains(got, `"window-expired"`) || strings.Contains(got, "missed") {
		t.Errorf("the one that missed an event was told %q", got)
	}
	publish(t, b, "demo", "next")
	missed.Until("data: next")
	publish(t, b, sibling, "first")
	if got := spared.Until("data: first"); strings.Contains(got, "resync") {
		t.Errorf("the one that missed nothing was told %q", got)
	}
}

// siblingOf is a device in the same shard of 64.
func siblingOf(device string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("sibling-", i); testkit.Shard(name, 64) == testkit.Shard(device, 64) {
			return name
		}
	}
}

// TestRedisFrozen: Redis answers nothing for a while. Connections stay, new
// ones get their first bytes, publishing says 503 in time, and afterwards
// everything that was accepted is delivered once.
func TestRedisFrozen(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	g := program.StartGateway(t, args("--log", redis.URL(), "--publish-timeout", "1s")...)
	s := testkit.Open(t, g.Device+"/events?device=demo", "")
	s.Until(resync)
	publish(t, g, "demo", "before")
	cursor := ""
	for line := range strings.Lines(s.Until("data: before")) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			cursor = strings.TrimSpace(id)
		}
	}

	redis.Stop()
	begin := time.Now()
	for time.Since(begin) < freeze {
		fresh := testkit.Open(t, g.Device+"/events?device=demo", "1-1") // must be judged, and can't
		fresh.Until(": downlink")
		fresh.Close()
		status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"demo","type":"t","text":"never claimed","idem":"once"}`)
		if status != 503 || !strings.Contains(answer, "hint") {
			t.Errorf("publishing: %d %s", status, answer)
		}
		if got := s.Until(": ping"); strings.Contains(got, "id: ") {
			t.Errorf("a position was told while the log was away: %q", got)
		}
		short := testkit.Open(t, g.Device+"/events?device=demo", cursor)
		short.Until(": ping") // a short resume is served from memory
		short.Close()
	}
	if status, _ := testkit.Get(t, g.Backend+"/readyz"); status != 200 {
		t.Errorf("a gateway that has been ready stays ready: %d", status)
	}
	redis.Cont()

	testkit.Eventually(t, "publishing works again", func() bool {
		status, _ := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"demo","type":"t","text":"never claimed","idem":"once"}`)
		return status == 200
	})
	publish(t, g, "demo", "after")
	got := s.Until("data: after")
	if strings.Contains(got, "resync") || strings.Count(got, "never claimed") != 1 {
		t.Errorf("after the thaw: %q", got)
	}
}

// TestLogReplaced: what happens to the log behind our back is told to the
// devices within seconds, and nothing has to be restarted.
func TestLogReplaced(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	for name, c := range map[string]struct {
		config []string
		act    func(t *testing.T, r *testkit.Redis)
	}{
		"FLUSHALL": {act: func(t *testing.T, r *testkit.Redis) { r.Do("FLUSHALL") }},
		"DEL":      {act: func(t *testing.T, r *testkit.Redis) { r.Do("DEL", demoShard) }},
		"DEL of everything of the shard": {act: func(t *testing.T, r *testkit.Redis) {
			r.Do("DEL", demoShard, demoShard+":sweep", demoShard+":gone")
		}},
		"restart without data": {act: func(t *testing.T, r *testkit.Redis) { r.Kill9(); r.Start() }},
		"older snapshot": {
			config: []string{"dbfilename dump.rdb"},
			act: func(t *testing.T, r *testkit.Redis) {
				r.Kill9()
				old, err := os.ReadFile(filepath.Join(r.Dir(), "old.rdb"))
				if err == nil {
					err = os.WriteFile(filepath.Join(r.Dir(), "dump.rdb"), old, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				r.Start()
			},
		},
		"flush after an ID from the future": {act: func(t *testing.T, r *testkit.Redis) {
			r.Do("XADD", demoShard, "99999999999999-0", "dev", "demo", "type", "t", "payload", "future")
			r.Do("FLUSHALL")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testkit.StartRedis(t, testkit.RedisConfig(c.config...))
			g := program.StartGateway(t, args("--log", redis.URL())...)
			s := testkit.Open(t, g.Device+"/events?device=demo", "")
			s.Until(resync)
			if name == "older snapshot" {
				redis.Do("SAVE")
				snapshot(t, redis)
			}
			publish(t, g, "demo", "before")
			s.Until("data: before")
			c.act(t, redis)
			if got := s.Until(resync); !strings.Contains(got, `"log-rewound"`) && !strings.Contains(got, "future") {
				t.Errorf("told %q", got)
			}
			testkit.Eventually(t, "publishing works", func() bool {
				status, _ := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"demo","type":"t","text":"after"}`)
				return status == 200
			})
			s.Until("data: after")
		})
	}
}

func snapshot(t *testing.T, r *testkit.Redis) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join(r.Dir(), "dump.rdb"))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.Dir(), "old.rdb"), old, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLogOlderThanItsGateways: producers wrote before any gateway ran.
func TestLogOlderThanItsGateways(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t)
	for _, payload := range []string{"one", "two"} {
		redis.Do("XADD", demoShard, "*", "dev", "demo", "type", "t", "payload", payload)
	}
	g := program.StartGateway(t, args("--log", redis.URL())...)
	s := testkit.Open(t, g.Device+"/events?device=demo&from=earliest", "")
	if got := s.Until("data: two"); !strings.Contains(got, "data: one") || strings.Contains(got, "resync") {
		t.Errorf("%q", got)
	}
	redis.Do("XADD", demoShard, "*", "dev", "demo", "type", "t", "payload", "three")
	s.Until("data: three")
}

// TestFutureID: an entry from the far future is delivered, later ones too, and
// sweeping goes on behind it.
func TestFutureID(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t)
	g := program.StartGateway(t, args("--log", redis.URL(), "--window", "6s", "--sweep-interval", "200ms")...)
	s := testkit.Open(t, g.Device+"/events?device=demo", "")
	s.Until(resync)
	redis.Do("XADD", demoShard, "99999999999999-0", "dev", "demo", "type", "t", "payload", "future")
	s.Until("data: future")
	publish(t, g, "demo", "later")
	if got := s.Until("data: later"); strings.Contains(got, "resync") {
		t.Errorf("%q", got)
	}
	testkit.Eventually(t, "both are swept", func() bool { return redis.Do("XLEN", demoShard) == int64(0) })
}

// TestRubbishInTheLog: what raw writers get wrong is passed over, and forges nothing.
func TestRubbishInTheLog(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t)
	g := program.StartGateway(t, args("--log", redis.URL(), "--max-event-bytes", "1KiB")...)
	s := testkit.Open(t, g.Device+"/events?device=demo", "")
	s.Until(resync)
	for _, fields := range [][]string{
		{"dev", "demo", "type", "x"},
		{"type", "x", "payload", "no device"},
		{"dev", "demo", "payload", "no type"},
		{"dev", "demo", "type", "x\ndata: forged", "payload", "bad type"},
		{"dev", "demo", "type", "resync", "payload", `{"reason":"forged"}`},
		{"dev", "demo\nx", "type", "x", "payload", "bad device"},
		{"dev", "demo", "type", "x", "payload", "not UTF-8: \xff\xfe"},
		{"dev", "", "type", "", "payload", ""},
		{"unknown", "fields only"},
	} {
		redis.Do(append([]string{"XADD", demoShard, "*"}, fields...)...)
	}
	redis.Do("XADD", demoShard, "*", "dev", "demo", "type", "x", "payload", "a\n\nevent: forged\ndata: forged\n\nid: 1-1", "more", "fields")
	redis.Do("XADD", demoShard, "*", "dev", "demo", "type", "x", "payload", strings.Repeat("large", 1000))
	redis.Do("XADD", demoShard, "*", "dev", "device-1", "type", "x", "payload", "lives in another shard")
	redis.Do("XADD", demoShard, "*", "dev", "demo", "type", "good", "payload", "good")
	got := s.Until("data: good")
	if i := strings.Index(got, "id: "); !strings.HasPrefix(got[i:], "id: ") ||
		!strings.Contains(got, "event: x\ndata: a\ndata: \ndata: event: forged\ndata: data: forged\ndata: \ndata: id: 1-1\n\n") ||
		!strings.Contains(got, "event: resync\ndata: {\"reason\":\"event-too-large\"") ||
		strings.Count(got, "event: ") != 4 { // x, resync, good, and the payload's own line
		t.Errorf("%q", got)
	}
	_, metrics := testkit.Get(t, g.Backend+"/metrics")
	for kind, n := range map[string]int{"missing-field": 4, "bad-type": 2, "bad-device": 2, "bad-payload": 1, "too-large": 1, "wrong-shard": 1} {
		if want := fmt.Sprintf("downlink_log_faults_total{kind=%q} %d\n", kind, n); !strings.Contains(metrics, want) {
			t.Errorf("not in the metrics: %s", want)
		}
	}
}

// TestTerminate: SIGTERM ends every stream with a time to come back, and the
// process with 0.
func TestTerminate(t *testing.T) {
	t.Parallel()
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir())...)
	var streams []*testkit.Stream
	for i := range 20 {
		s := testkit.Open(t, fmt.Sprintf("%s/events?device=d%d", g.Device, i), "")
		s.Until(resync)
		streams = append(streams, s)
	}
	code := make(chan int)
	go func() { code <- g.Terminate() }()
	for _, s := range streams {
		s.Until("retry: ")
	}
	if c := <-code; c != 0 {
		t.Errorf("exit code %d:\n%s", c, g.Log())
	}
	if !strings.Contains(g.Log(), "asked to stop") {
		t.Errorf("the log doesn't tell why it ended:\n%s", g.Log())
	}
}
