package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"downlink/internal/testkit"
)

// TestShedToOthers: one of three gateways is over a threshold, has more streams than
// the governor allows it then, and governor_shed_rate is set. What is too much moves
// to the others, which say that they have room, and nothing is lost or repeated.
func TestShedToOthers(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	const devices = 40
	launch := func() governed {
		return governed{program.StartGateway(t, args("--log", redis.URL(), "--max-connections", fmt.Sprint(devices), "--governor-reserve", "0",
			"--governor-shed-rate", "20", "--governor-shed-after", "1s", "--retry", "300ms")...), t}
	}
	pressed := launch()
	balancer := testkit.StartBalancer(t, pressed.Gateway)
	all := &voyages{devices: make([]voyage, devices)}
	ledger := testkit.NewLedger("shed", devices)
	ledger.Watch(all.note)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ledger.Connect(ctx, balancer.URL, 0) })
	defer running.Wait()
	defer cancel()
	ledger.AwaitBegun(t)
	others := []governed{launch(), launch()}
	for _, g := range others {
		balancer.Add(g.Gateway)
	}
	publishing, stop := context.WithCancel(ctx)
	running.Go(func() { ledger.Publish(publishing, func() string { return pressed.Backend }, 100) })
	// Any append takes longer than that.
	pressed.patch(`{"step":0.5,"fast_step":0.5,"signals":{"append_latency":{"threshold":1e-9,"wall":0,"levers":["admission"]}}}`)
	testkit.Eventually(t, "half of them have moved", func() bool {
		return pressed.Metric("sse_active_connections") <= devices/2 && all.all()
	})
	stop()
	t.Logf("%d events went through", ledger.Settle(t))
	gone := pressed.Metric(`downlink_session_ends_total{reason="shed"}`)
	all.mu.Lock()
	longest, broken := all.longest, all.broken
	all.mu.Unlock()
	t.Logf("%v streams were let go; the longest time without one %v", gone, longest)
	if gone < devices/2 || broken > 0 {
		t.Errorf("%v streams were let go; %d ended in disorder", gone, broken)
	}
	for _, g := range others {
		if n := g.Metric(`downlink_session_ends_total{reason="shed"}`); n > 0 {
			t.Errorf("a gateway that isn't pressed let %v streams go", n)
		}
	}
	if !strings.Contains(pressed.Log(), "the governor allows fewer streams than there are") {
		t.Error("its log says nothing")
	}
}
