package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/governor"
	"downlink/internal/testkit"
)

var governorFull = flag.Bool("governor.full", false, "fill a real Redis by publishing through three governed gateways, kill it, and restart a gateway at its wall: some minutes") //nolint:gochecknoglobals // as every flag

// Pressers are publishers who publish as fast as they may.
type pressers struct {
	accepted, limited, failed atomic.Int64
	running                   sync.WaitGroup
	stop                      context.CancelFunc
}

// startPressing starts publishers of events of about a KiB, each at one gateway, at so
// many a second together if they are let.
func startPressing(t *testing.T, rate int, fleet ...governed) *pressers {
	ctx, cancel := context.WithCancel(t.Context())
	c := &pressers{stop: cancel}
	event := fmt.Sprintf(`{"device":"crowd-%%d","type":"t","payload":%q}`, strings.Repeat("x", 1000))
	const each = 4
	for i, g := range fleet {
		for j := range each {
			c.running.Go(func() {
				pace := time.NewTicker(time.Duration(len(fleet)*each) * time.Second / time.Duration(rate))
				defer pace.Stop()
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for n := 0; ; n++ {
					select {
					case <-ctx.Done():
						return
					case <-pace.C:
						c.count(client, g.Backend, fmt.Sprintf(event, (i*each+j)*1000+n%1000))
					}
				}
			})
		}
	}
	t.Cleanup(c.end)
	return c
}

func (c *pressers) end() {
	c.stop()
	c.running.Wait()
}

func (c *pressers) count(client *http.Client, backend, event string) {
	resp, err := client.Post(backend+"/v1/events", "application/json", strings.NewReader(event))
	switch {
	case err != nil:
		c.failed.Add(1)
		return
	case resp.StatusCode == http.StatusOK:
		c.accepted.Add(1)
	case resp.StatusCode == http.StatusTooManyRequests:
		c.limited.Add(1)
	default:
		c.failed.Add(1)
	}
	resp.Body.Close()
}

// awaitLong waits for what may take longer than other tests have patience for.
func awaitLong(t *testing.T, what string, limit time.Duration, ok func() bool) (took time.Duration) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; !ok(); <-tick.C {
		if time.Since(began) > limit {
			t.Fatalf("waited in vain: %s", what)
		}
	}
	return time.Since(began)
}

func (g governed) publishing() governor.LeverState {
	g.t.Helper()
	return g.view().Levers[1]
}

// part is how full Redis is.
func (g governed) part() float64 {
	g.t.Helper()
	if s := g.memory(); s.Value != nil {
		return *s.Value
	}
	return 0
}

// TestGovernedFleet: publishers want to store twice as much within the window as may
// be in a real Redis, through three gateways, which fills it within half a minute. All
// of them hold back, it comes to rest about the threshold, and refuses nobody for want of
// memory; when the publishers have gone all gateways are open again. The threshold and the
// wall are as far apart as what fills it so fast needs.
func TestGovernedFleet(t *testing.T) {
	if !*governorFull {
		t.Skip("takes minutes: -governor.full; TestGovernedWithoutRedis is its short form")
	}
	redis := testkit.StartRedis(t, testkit.RedisConfig("maxmemory 64mb", "maxmemory-policy noeviction"))
	var fleet []governed
	for range 3 {
		g := governed{program.StartGateway(t, args("--log", redis.URL(), "--window", "60s", "--sweep-interval", "1s")...), t}
		g.patch(`{"step":0.3,"period":"5s","fast_period":"3s","brake":"20s","calm":"5s","rise_period":"5s","rise_step":0.2,"hesitance":2,"signals":{"redis_memory":{"threshold":0.5,"wall":0.8}}}`)
		fleet = append(fleet, g)
	}
	crowd := startPressing(t, 1200, fleet...)
	peak, last, least := 0.0, 0.0, [3]float64{1, 1, 1}
	for second := range 150 {
		<-time.After(time.Second)
		last = fleet[0].part()
		peak = max(peak, last)
		for i, g := range fleet {
			least[i] = min(least[i], g.publishing().Ratio)
		}
		if second%10 == 0 {
			t.Logf("%3d s: memory %.3f; ratios %.3f %.3f %.3f; %d accepted, %d limited, %d failed", second, last, fleet[0].publishing().Ratio, fleet[1].publishing().Ratio, fleet[2].publishing().Ratio,
				crowd.accepted.Load(), crowd.limited.Load(), crowd.failed.Load())
		}
	}
	crowd.end()
	if peak >= 0.95 || peak < 0.4 || last > 0.65 || crowd.failed.Load() > 0 {
		t.Errorf("memory reached %.3f and is %.3f; %d events were refused otherwise", peak, last, crowd.failed.Load())
	}
	t.Logf("memory reached %.3f; the ratios were lowered to %.3f", peak, least)
	for i, ratio := range least {
		if ratio > 0.9 {
			t.Errorf("gateway %d has held nothing back", i)
		}
	}
	for i, g := range fleet {
		took := awaitLong(t, "it is open again", 6*time.Minute, func() bool { return g.publishing().Ratio == 1 })
		t.Logf("gateway %d is open again %v later", i, took.Round(time.Second))
	}
}

// TestGovernorRestarts: a gateway that is restarted while Redis is at its wall begins
// at 1, and sees it within moments; and a Redis that is killed, and comes back with
// nothing, leaves the ratio where it was, and then lets it rise.
func TestGovernorRestarts(t *testing.T) {
	if !*governorFull {
		t.Skip("takes minutes: -governor.full")
	}
	redis := smallRedis(t)
	fill(redis, 36)
	start := func() governed {
		g := governed{program.StartGateway(t, args("--log", redis.URL(), "--max-connections", "20")...), t}
		g.patch(`{"calm":"1s","rise_step":0.1,"rise_period":"1s","hesitance":1}`)
		return g
	}
	falls := func(g governed) {
		t.Helper()
		crowd := startPressing(t, 500, g)
		took := awaitLong(t, "publishing is lowered", 30*time.Second, func() bool { return g.publishing().Ratio < 1 })
		l := g.publishing()
		if l.Signal != "redis_memory" || !strings.Contains(l.Why, "wall") {
			t.Errorf("%+v", l)
		}
		<-time.After(15 * time.Second)
		l = g.publishing()
		t.Logf("publishing was lowered after %v; 15 s later it is at %.2f (%.0f entries/s); %d events were accepted, %d refused for want of memory; memory is %.3f",
			took.Round(100*time.Millisecond), l.Ratio, *l.Maximum, crowd.accepted.Load(), crowd.failed.Load(), g.part())
		if *l.Maximum < 20 { // a tenth of what is asked for, though little or nothing was stored
			t.Errorf("%v entries a second are left of some hundred", *l.Maximum)
		}
		if took > 5*time.Second || crowd.accepted.Load() > 2000 {
			t.Errorf("it took %v, and %d events were accepted while Redis is at its wall", took, crowd.accepted.Load())
		}
		crowd.end()
	}
	g := start()
	falls(g)
	g.Kill9()
	g = start()
	falls(g)
	ratio := g.publishing().Ratio
	redis.Kill9()
	awaitLong(t, "it says that it doesn't know", time.Minute, func() bool { return g.memory().Verdict == governor.Unknown })
	<-time.After(15 * time.Second)
	if l, s := g.publishing(), g.memory(); l.Ratio != ratio || l.Verdict != governor.Unknown || s.Error == "" {
		t.Errorf("without Redis: %+v, %+v", l, s)
	}
	redis.Start()
	took := awaitLong(t, "it rises", time.Minute, func() bool { return g.publishing().Ratio > ratio })
	t.Logf("it rises %v after Redis is back, with nothing", took.Round(time.Second))
}
