package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// TestRebalance: one gateway has all devices, because the two others came later.
// It says what it would do; switched on, it lets its surplus go at the rate, nothing
// is lost or repeated, and no device is without its stream for longer than it was told.
func TestRebalance(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	const devices, rate = 60, 40
	launch := func() *testkit.Gateway {
		return program.StartGateway(t, args("--log", redis.URL(), "--rebalance-after", "1s", "--retry", "300ms")...)
	}
	first := launch()
	balancer := testkit.StartBalancer(t, first)
	all := &voyages{devices: make([]voyage, devices)}
	ledger := testkit.NewLedger("even", devices)
	ledger.Watch(all.note)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ledger.Connect(ctx, balancer.URL, 0) })
	defer running.Wait()
	defer cancel()
	ledger.AwaitBegun(t)
	fleet := []*testkit.Gateway{first, launch(), launch()}
	balancer.Add(fleet[1])
	balancer.Add(fleet[2])
	testkit.Eventually(t, "it says what it would let go", func() bool {
		s := standing(t, first)
		return s.State == "off" && s.Gateways == 3 && s.Surplus == devices-devices/3
	})
	if r := program.Run(t, "", "drain", "--show", "--backend", first.Backend); r.Code != 0 || !strings.Contains(r.Out, "it holds 40 more than each of 3 gateways") {
		t.Errorf("downlink drain --show: %+v", r)
	}
	publishing, stop := context.WithCancel(ctx)
	running.Go(func() { ledger.Publish(publishing, func() string { return fleet[1].Backend }, 100) })
	began := time.Now()
	for _, g := range fleet {
		if r := program.Run(t, "", "limits", "--backend", g.Backend, "--set", fmt.Sprint("rebalance_rate=", rate)); r.Code != 0 {
			t.Fatalf("downlink limits: %+v", r)
		}
	}
	testkit.Eventually(t, "the fleet is even", func() bool {
		for _, g := range fleet {
			if s := standing(t, g); s.State != "even" || g.Metric("sse_active_connections") > float64(s.Allowed) {
				return false
			}
		}
		return all.all()
	})
	took := time.Since(began)
	stop()
	t.Logf("%d events went through", ledger.Settle(t))
	moved := 0.0
	for _, g := range fleet {
		moved += g.Metric(`downlink_session_ends_total{reason="rebalanced"}`)
	}
	all.mu.Lock()
	longest, over, broken, back := all.longest, all.over, all.broken, len(all.back)
	all.mu.Unlock()
	t.Logf("%v moves in %v; the longest time without a stream %v, %v more than the device was told to wait", moved, took, longest, over)
	if back != int(moved) || moved < devices/2 {
		t.Errorf("%d came back, %v were let go", back, moved)
	}
	if least := time.Duration(moved/rate/2) * time.Second; took < least {
		t.Errorf("%v moves at %d a second took %v", moved, rate, took)
	}
	if over > 15*time.Second || broken > 0 { // others' tests run beside this one
		t.Errorf("a device was without a stream for %v longer than it was told; %d streams ended in disorder", over, broken)
	}
}

// A stand is how a gateway stands in its fleet, as it says itself.
type stand struct {
	State                      string
	Gateways, Allowed, Surplus int
}

func standing(t *testing.T, g *testkit.Gateway) stand {
	t.Helper()
	var answer struct{ Rebalance stand }
	if _, body := testkit.Get(t, g.Backend+"/v1/drain"); json.Unmarshal([]byte(body), &answer) != nil {
		t.Fatalf("GET /v1/drain: %s", body)
	}
	return answer.Rebalance
}

// TestNothingToSpread: with the embedded log there is no other gateway, and the
// gateway says so.
func TestNothingToSpread(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--rebalance-rate", "10")...)
	if s := standing(t, g); s.State != "single" || g.Metric(`downlink_rebalance_state{state="single"}`) != 1 {
		t.Errorf("%+v", s)
	}
}
