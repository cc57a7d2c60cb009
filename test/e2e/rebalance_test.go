package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

//nolint:gochecknoglobals // as every flag
var (
	rebalanceDevices = flag.Int("rebalance.devices", 60, "devices that one of three gateways has; a multiple of 3")
	rebalanceRate    = flag.Int("rebalance.rate", 40, "rebalance_rate")
)

// TestRebalance: one gateway has all devices, because the two others came later.
// It says what it would do; switched on, it lets its surplus go at the rate, nothing
// is lost or repeated, and no device is without its stream for longer than it was told.
func TestRebalance(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	devices, rate := *rebalanceDevices, *rebalanceRate
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
	if r := program.Run(t, "", "drain", "--show", "--backend", first.Backend); r.Code != 0 || !strings.Contains(r.Out, fmt.Sprintf("it holds %d more than each of 3 gateways", devices-devices/3)) {
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
	moved, held := 0.0, []float64{}
	for _, g := range fleet {
		held = append(held, g.Metric("sse_active_connections"))
		moved += g.Metric(`downlink_session_ends_total{reason="rebalanced"}`)
	}
	all.mu.Lock()
	longest, over, broken, back, most := all.longest, all.over, all.broken, len(all.back), perSecond(all.back)
	all.mu.Unlock()
	t.Logf("%v moves in %v, at most %d came back in a second; then there were %v; the longest time without a stream %v, %v more than the device was told to wait", moved, took.Round(100*time.Millisecond), most, held, longest, over)
	if back != int(moved) || int(moved) < devices/2 {
		t.Errorf("%d came back, %v were let go", back, moved)
	}
	if least := time.Duration(moved/float64(rate)/2) * time.Second; took < least {
		t.Errorf("%v moves at %d a second took %v", moved, rate, took)
	}
	if over > 35*time.Second || broken > 0 { // others' tests run beside this one
		t.Errorf("a device was without a stream for %v longer than it was told; %d streams ended in disorder", over, broken)
	}
	if status, body := testkit.Post(t, first.Backend+"/v1/drain", "application/json", "{}"); status != 202 {
		t.Fatalf("POST /v1/drain: %d %s", status, body)
	}
	testkit.Eventually(t, "who goes says so", func() bool { // until it is gone
		_, body := testkit.Get(t, first.Backend+"/v1/drain")
		return strings.Contains(body, `"state":"absent"`) || first.Exited()
	})
	testkit.Eventually(t, "who goes isn't counted any more", func() bool { return standing(t, fleet[1]).Gateways == 2 })
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
