package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// quick makes a gateway's rhythm fit a test.
var quick = []string{"--retry", "100ms", "--keepalive", "1s"}

func args(more ...string) []string { return append(append([]string{}, quick...), more...) }

// TestGatewayKilled: two gateways on one Redis; one is killed again and again
// under load; its devices go on at the other, and the ledger stays clean.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	var mu sync.Mutex
	gateways := []*testkit.Gateway{}
	for range 2 {
		gateways = append(gateways, program.StartGateway(t, args("--log", redis.URL())...))
	}
	pick := func() *testkit.Gateway {
		mu.Lock()
		defer mu.Unlock()
		return gateways[rand.IntN(len(gateways))]
	}
	ledger := testkit.NewLedger("pos", 60)
	finish := connect(t, ledger, func() string { return pick().Device }, 3*time.Second)
	ledger.AwaitBegun(t)
	publishing, stop := context.WithCancel(t.Context())
	published := make(chan struct{})
	go func() {
		defer close(published)
		ledger.Publish(publishing, func() string { return pick().Backend }, 400)
	}()
	for round := range 3 {
		victim := gateways[round%2]
		survivor := gateways[(round+1)%2]
		mu.Lock()
		gateways = []*testkit.Gateway{survivor} // a load balancer would see it
		mu.Unlock()
		victim.Kill9()
		fresh := program.StartGateway(t, args("--log", redis.URL())...)
		mu.Lock()
		gateways = []*testkit.Gateway{survivor, fresh}
		mu.Unlock()
		before := ledger.Acked()
		testkit.Eventually(t, "events went through both", func() bool { return ledger.Acked() > before+400 })
	}
	stop()
	<-published
	t.Logf("%d events went through", ledger.Settle(t))
	finish()
}

// connect runs a ledger's devices until finish is called, or the test ends.
func connect(t *testing.T, ledger *testkit.Ledger, where func() string, stay time.Duration) (finish func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ledger.Connect(ctx, where, stay)
	}()
	finish = func() { cancel(); <-done }
	t.Cleanup(finish)
	return finish
}

// TestEmbeddedLogKilled: kill -9 at a random moment under load, 20 times. What
// was answered with 200 is there afterwards, and no ID ever means another event.
func TestEmbeddedLogKilled(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	dir := "file:" + t.TempDir()
	kept := make(map[string]string) // payload by ID: once stored it may never change, acknowledged or not
	serial := 0
	start := func() *testkit.Gateway {
		return program.StartGateway(t, args("--log", dir, "--shards", "4")...)
	}
	g := start()
	for round := range 20 {
		acked := publishUntilKilled(t, g, &serial)
		g = start()
		have := readAll(t, g)
		for id, payload := range acked {
			if have[id] != payload {
				t.Fatalf("round %d: %s was acknowledged as %q and is %q", round, id, payload, have[id])
			}
		}
		for id, payload := range kept {
			if have[id] != payload {
				t.Fatalf("round %d: %s was %q and is %q", round, id, payload, have[id])
			}
		}
		kept = have
	}
	t.Logf("%d events survived 20 crashes", len(kept))
}

// publishUntilKilled publishes from four sides until the gateway dies.
func publishUntilKilled(t *testing.T, g *testkit.Gateway, serial *int) map[string]string {
	t.Helper()
	acked := make(map[string]string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				mu.Lock()
				*serial++
				n := *serial
				mu.Unlock()
				status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json",
					fmt.Sprintf(`{"device":"only","type":"n","payload":%d}`, n))
				if status != 200 {
					return
				}
				var stored struct{ ID string }
				if err := json.Unmarshal([]byte(answer), &stored); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[stored.ID] = fmt.Sprint(n)
				mu.Unlock()
			}
		})
	}
	killed := make(chan struct{})
	timer := time.AfterFunc(time.Duration(50+rand.IntN(300))*time.Millisecond, func() { defer close(killed); g.Kill9() })
	wg.Wait()
	if timer.Stop() {
		t.Fatal("publishing failed before the gateway was killed")
	}
	<-killed
	return acked
}

// readAll is every event that the log holds for the device, by ID.
func readAll(t *testing.T, g *testkit.Gateway) map[string]string {
	t.Helper()
	marker := fmt.Sprintf("marker-%d", rand.Int64())
	status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json",
		fmt.Sprintf(`{"device":"only","type":"marker","payload":%q}`, marker))
	if status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	s := testkit.Open(t, g.Device+"/events?device=only&from=earliest", "")
	defer s.Close()
	text := s.Until(fmt.Sprintf("data: %q", marker))
	found := make(map[string]string)
	id := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if value, ok := strings.CutPrefix(line, "id: "); ok {
			id = value
		}
		if value, ok := strings.CutPrefix(line, "data: "); ok {
			if _, twice := found[id]; twice {
				t.Errorf("%s came twice", id)
			}
			found[id] = value
		}
	}
	return found
}
