package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

// TestDialStatic: two of three members deliver each event, without knowing of
// each other. While one is away nothing is missing or late; the devices drop what
// comes twice by its ID.
func TestDialStatic(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	redis := testkit.StartRedis(t)
	ledger := testkit.NewLedger("static", 60)
	ledger.Justify(func(r client.Resync) error {
		if r.Reason != "no-cursor" { // two may come at once to a device that has none
			return fmt.Errorf("resync %s at %s", r.Reason, r.ID)
		}
		return nil
	})
	devices := testkit.ServeDialled(t, ledger)
	inventory := devices.Inventory("ws")
	members := make([]*testkit.Gateway, 3)
	launch := func(i int) {
		members[i] = program.LaunchDialler(t, args("--log", redis.URL(), "--owner", "static", "--transport", "websocket",
			"--member-index", fmt.Sprint(i), "--members", "3", "--replication", "2",
			"--inventory", inventory, "--dial-schemes", "ws", "--dial-allow", "127.0.0.0/8", "--retry", "100ms")...)
	}
	for i := range members {
		launch(i)
	}
	for _, m := range members {
		m.AwaitReady()
	}
	ledger.AwaitBegun(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	defer stop()
	// The second member is the one that is killed.
	running.Go(func() { ledger.Publish(ctx, func() string { return members[2*rand.IntN(2)].Backend }, 60) })
	rest := func() { <-time.After(1500 * time.Millisecond) }
	rest()
	ledger.Stall()
	members[1].Kill9()
	rest()
	if stall := ledger.Stall(); stall > 10*time.Second { // each device gets an event a second
		t.Errorf("a device got nothing for %v while one of its two members was away", stall)
	}
	launch(1)
	members[1].AwaitReady()
	rest()
	stop()
	events := ledger.Settle(t)
	if devices.Repeats() < events/10 { // the second member may be late, beside other tests
		t.Errorf("%d of %d events came twice", devices.Repeats(), events)
	}
	t.Logf("%d events, %d repeats, resyncs %v", events, devices.Repeats(), ledger.Resyncs())
}
