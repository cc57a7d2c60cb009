package gateway

import (
	"encoding/json"
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"downlink/internal/governor"
	"downlink/internal/testkit"
)

var governed = flag.Bool("governor.full", false, "fill a real Redis until the governor acts, freeze it, empty it: a few minutes")

// A gateway's governor on a real Redis: what is measured is known within moments.
// In full: Redis fills beyond the threshold, and publishing is lowered, by the
// right signal; Redis freezes, and it stays where it is and says that it doesn't
// know; Redis has room again, and it rises.
func TestGovernorOnRedis(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 40mb", "maxmemory-policy noeviction"))
	g := run(t, testOptions(t, redis.URL()))
	state := func() governor.State { return g.flow.Load().governor.State() }
	memory := func() governor.SignalState {
		for _, s := range state().Signals {
			if s.Name == "redis_memory" {
				return s
			}
		}
		return governor.SignalState{}
	}
	publish := func() governor.LeverState { return state().Levers[1] }
	testkit.Eventually(t, "Redis's memory is known", func() bool {
		s := memory()
		return s.Value != nil && *s.Value > 0 && *s.Value < 0.5 && s.Error == ""
	})
	if !*governed {
		return
	}
	wait := func(what string, within time.Duration, ok func() bool) {
		t.Helper()
		began := time.Now()
		for !ok() {
			if time.Since(began) > within {
				text, _ := json.Marshal(state())
				t.Fatalf("waited in vain until %s: %s", what, text)
			}
			<-time.After(200 * time.Millisecond)
		}
		t.Logf("after %v %s: memory %.3f, publish %.3f", time.Since(began).Round(time.Second), what, *memory().Value, publish().Ratio)
	}
	redis.Do("SETRANGE", "ballast", strconv.Itoa(32<<20), "x")
	wait("publishing is lowered", time.Minute, func() bool { return publish().Ratio < 1 && publish().Signal == "redis_memory" })
	if s := limitOf(t, g, publishRate); s.Effective == 0 || !strings.Contains(s.Why, "redis_memory of 127.0.0.1") {
		t.Errorf("%+v", s)
	}
	redis.Stop()
	wait("nothing is known of Redis", time.Minute, func() bool { return memory().Verdict == governor.Unknown && memory().Error != "" })
	at := publish().Ratio
	<-time.After(time.Minute)
	if got := publish(); got.Ratio != at || got.Verdict != governor.Unknown {
		t.Errorf("while Redis is frozen: %+v", got)
	}
	redis.Cont()
	redis.Do("DEL", "ballast")
	wait("it rises", 3*time.Minute, func() bool { return publish().Ratio > at })
}
