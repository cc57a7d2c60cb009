package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	grpc "connectrpc.com/connect"

	"downlink/internal/governor"
	"downlink/internal/governor/rpc/governorv1"
	"downlink/internal/testkit"
	"downlink/throttle"
)

// TestGovernorForOthers: another program asks downlink governor, on whose Redis there
// is no room. It goes on with what it was told while Redis, the governor or the way
// to it is frozen or gone, is never kept waiting, and knows all of it.
func TestGovernorForOthers(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 40mb", "maxmemory-policy noeviction"))
	start := func() *testkit.Gateway {
		return program.StartGovernor(t, "--log", redis.URL(), "--governor-maximum", "50000", "--shutdown-timeout", "1s")
	}
	g := start()
	way := testkit.StartProxy(t, strings.TrimPrefix(g.Backend, "http://"))
	// What it says counts for an hour, however busy this machine is: a fall counts from it.
	asks(t, throttle.Options{URL: g.Backend, Refresh: 20 * time.Minute, Timeout: time.Minute, Use: func() float64 { return 20000 }}) // of 50,000
	testkit.Eventually(t, "it knows what is in use", func() bool { return g.Metric(`downlink_limit_used{name="governor_callers"}`) == 1 })
	c := asks(t, throttle.Options{URL: "http://" + way.Addr(), Refresh: 100 * time.Millisecond})
	redis.Do("SETRANGE", "ballast", "38000000", "x")
	testkit.Eventually(t, "it is held back", func() bool { return c.Ratio() < 1 })
	// From what is in use, and not from what is allowed.
	s := c.State()
	if s.Ratio > 0.37 || s.Maximum != 50000*s.Ratio || s.Unit != "places" || s.Signal != "redis_memory" || !strings.Contains(s.Why, "redis_memory of 127.0.0.1:") {
		t.Errorf("the first that is heard of it: %+v", s)
	}
	byGRPC(t, g, s.Ratio)
	if n := g.Metric(`downlink_throttle_ratio{lever="admission"}`); n > 0.37 {
		t.Errorf("/metrics says %v", n)
	}
	redis.Do("DEL", "ballast") // it doesn't rise before a minute has been good

	trouble := func(what, want string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return strings.Contains(memory(t, g).Error, want) })
	}
	redis.Stop()
	trouble("a frozen Redis is no answer", "in time")
	redis.Cont()
	testkit.Eventually(t, "Redis is heard again", func() bool { return memory(t, g).Error == "" })
	redis.Kill9()
	trouble("a killed Redis is no answer", "refused")

	stands := c.Ratio()
	patient := asks(t, throttle.Options{URL: "http://" + way.Addr(), Refresh: 100 * time.Millisecond, Timeout: time.Hour})
	testkit.Eventually(t, "it is heard here, too", func() bool { return patient.Ratio() == stands })
	way.Stall()
	testkit.Eventually(t, "nobody answers", func() bool { return c.State().Stale && patient.State().Age > time.Second })
	asked := make(chan struct{})
	go func() { // while a question waits for an hour
		defer close(asked)
		for range 10_000 {
			if s := patient.State(); patient.Ratio() != stands || s.Ratio != stands {
				t.Errorf("%+v", s)
				return
			}
		}
	}()
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("who asks for the ratio is kept waiting")
	}
	way.Resume()
	testkit.Eventually(t, "it answers again", func() bool { s := c.State(); return !s.Stale && s.Err == nil && s.Ratio == stands })
	g.Kill9()
	testkit.Eventually(t, "it is killed", func() bool { s := c.State(); return s.Stale && s.Err != nil })
	again := start()
	way.Retarget(strings.TrimPrefix(again.Backend, "http://"))
	// Nor does it get one, without Redis.
	testkit.Eventually(t, "another one has no opinion yet", func() bool { s := c.State(); return s.Err != nil && strings.Contains(s.Err.Error(), "503") })
	if s := c.State(); s.Ratio != stands || s.Age < 300*time.Millisecond || s.Why == "" {
		t.Errorf("the last word doesn't stand: %+v", s)
	}
	if status, text := testkit.Get(t, again.Backend+"/readyz"); status != 503 || !strings.Contains(text, "no opinion yet") {
		t.Errorf("%d %s", status, text)
	}
	if code := again.Terminate(); code != 0 {
		t.Errorf("SIGTERM: %d", code)
	}
}

func asks(t *testing.T, o throttle.Options) *throttle.Client {
	t.Helper()
	c, err := throttle.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// byGRPC asks as programs in other languages do, and follows.
func byGRPC(t *testing.T, g *testkit.Gateway, ratio float64) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	c := governorv1.NewGovernorClient(client, g.Backend, grpc.WithGRPC())
	got, err := c.GetState(t.Context(), &governorv1.GetStateRequest{})
	if err != nil || got.GetState().GetLevers()[0].GetRatio() > ratio {
		t.Errorf("by gRPC: %v, %v", got, err)
	}
	stream, err := c.Watch(t.Context(), &governorv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetState().GetSettings() == nil {
		t.Error(stream.Err())
	}
}

// memory is how a governor's signal of Redis's memory stands.
func memory(t *testing.T, g *testkit.Gateway) (found governor.SignalState) {
	t.Helper()
	var state governor.State
	if _, text := testkit.Get(t, g.Backend+"/v1/governor"); json.Unmarshal([]byte(text), &state) != nil {
		t.Fatal(text)
	}
	for _, s := range state.Signals {
		if s.Name == "redis_memory" {
			found = s
		}
	}
	return found
}
