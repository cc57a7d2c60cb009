package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

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
	// The second member is the one that is killed.
	busy := func() (events int) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer func() { cancel(); running.Wait() }()
		running.Go(func() { ledger.Publish(ctx, func() string { return members[2*rand.IntN(2)].Backend }, 60) })
		enough := ledger.Acked() + 90 // of 60 devices
		testkit.Eventually(t, "events are accepted", func() bool { return ledger.Acked() >= enough })
		cancel()
		running.Wait()
		return ledger.Settle(t)
	}
	busy()
	members[1].Kill9()
	busy() // nobody waits for the one that is away
	launch(1)
	members[1].AwaitReady()
	events := busy()
	testkit.Eventually(t, "some events come twice", func() bool { return devices.Repeats() >= events/10 })
	t.Logf("%d events, %d repeats, resyncs %v", events, devices.Repeats(), ledger.Resyncs())
}
