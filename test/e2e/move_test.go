package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// A traveller is a device that moves between gateways with its cursor, and
// holds what it reads against 1, 2, 3 …
type traveller struct {
	t      *testing.T
	stream *testkit.Stream
	cursor string
	count  int
}

// takes reads up to event n of its stream, which must be the next ones.
func (d *traveller) takes(n int) {
	d.t.Helper()
	id := ""
	for line := range strings.Lines(d.stream.Until(fmt.Sprint("data: ", n))) {
		line = strings.TrimSuffix(line, "\n")
		if value, ok := strings.CutPrefix(line, "id: "); ok {
			id = value
		}
		if line == "event: resync" && d.cursor != "" {
			d.t.Fatalf("after %d: a false resync at %s", d.count, id)
		}
		value, ok := strings.CutPrefix(line, "data: ")
		if !ok || strings.HasPrefix(value, "{") {
			continue
		}
		if d.count++; value != fmt.Sprint(d.count) {
			d.t.Fatalf("got %s (%s) where %d comes next", value, id, d.count)
		}
	}
	d.cursor = id
}

// arrive is a traveller at gateway g that has taken n events which were
// published there; the other gateway has read them as well.
func arrive(t *testing.T, g, other *testkit.Gateway, n int) *traveller {
	t.Helper()
	d := &traveller{t: t, stream: testkit.Open(t, g.Device+"/events?device=demo", "")}
	d.stream.Until(resync)
	before := other.Metric("downlink_tail_entries_total")
	for i := range n {
		publish(t, g, "demo", fmt.Sprint(i+1))
	}
	d.takes(n)
	testkit.Eventually(t, "the other gateway has read as much", func() bool {
		return other.Metric("downlink_tail_entries_total") >= before+float64(n)
	})
	return d
}

// TestMoveToAGatewayThatWakes: the other gateway was frozen while more came,
// and wakes in the moment in which the device asks it. Whether it reads the
// log or answers the device first is chance, so it is done many times.
func TestMoveToAGatewayThatWakes(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t)
	a := program.StartGateway(t, args("--log", redis.URL())...)
	b := program.StartGateway(t, args("--log", redis.URL())...)
	d := arrive(t, a, b, 95)
	for range 10 {
		n := d.count
		b.Stop()
		for i := range 5 {
			publish(t, a, "demo", fmt.Sprint(n+i+1))
		}
		d.takes(n + 5)
		d.stream.Close()
		d.stream = ask(t, b, "demo", d.cursor)
		b.Cont()
		publish(t, a, "demo", fmt.Sprint(n+6))
		d.takes(n + 6)
		a, b = b, a
	}
}

// ask is testkit.Open without waiting for the answer: a frozen gateway's
// kernel takes the connection and the request.
func ask(t *testing.T, g *testkit.Gateway, device, cursor string) *testkit.Stream {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.Device, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	stream := testkit.RawStream(t, conn)
	// HTTP/1.0: the stream comes without chunks.
	if _, err := fmt.Fprintf(conn, "GET /events?device=%s HTTP/1.0\r\nLast-Event-ID: %s\r\n\r\n", device, cursor); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestMoveToAGatewayBehind: the other gateway's tail is held up, and nothing
// else of it. It can judge the cursor, which is ahead of all that it has read.
func TestMoveToAGatewayBehind(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, redis.Addr())
	a := program.StartGateway(t, args("--log", redis.URL())...)
	b := program.StartGateway(t, args("--log", "redis://"+proxy.Addr(), "--keepalive", "200ms")...)
	d := arrive(t, a, b, 95)
	testkit.Eventually(t, "the tail's connection is there, and alone", func() bool { return proxy.StallThose("XREAD") == 1 })
	for i := range 5 {
		publish(t, a, "demo", fmt.Sprint(96+i))
	}
	d.takes(100)
	d.stream.Close()
	d.stream = testkit.Open(t, b.Device+"/events?device=demo", d.cursor)
	// Live, and no position but its own may be told to it meanwhile.
	if got := d.stream.Until(": ping"); strings.Contains(strings.ReplaceAll(got, "id: "+d.cursor+"\n\n", ""), "id: ") {
		t.Errorf("a gateway that is behind told %q to a device at %s", got, d.cursor)
	}
	publish(t, a, "demo", "101")
	proxy.Resume()
	d.takes(101)
	publish(t, b, "demo", "102")
	d.takes(102)
}

// TestMoveToAGatewayCutOff: the other gateway's whole link to Redis is held
// up. The device waits there, and gets what it misses once the link is back.
func TestMoveToAGatewayCutOff(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	for name, mend := range map[string]func(*testkit.Proxy){
		"the link recovers": (*testkit.Proxy).Resume,
		"the link breaks":   func(p *testkit.Proxy) { p.Cut(); p.Resume() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testkit.StartRedis(t)
			proxy := testkit.StartProxy(t, redis.Addr())
			a := program.StartGateway(t, args("--log", redis.URL())...)
			b := program.StartGateway(t, args("--log", "redis://"+proxy.Addr())...)
			d := arrive(t, a, b, 95)
			old := d.cursor
			proxy.Stall()
			for i := range 5 {
				publish(t, a, "demo", fmt.Sprint(96+i))
			}
			d.takes(100)
			// One is ahead of the gateway, one is where the gateway is.
			d.stream.Close()
			d.stream = testkit.Open(t, b.Device+"/events?device=demo", d.cursor)
			level := &traveller{t: t, cursor: old, count: 95, stream: testkit.Open(t, b.Device+"/events?device=demo", old)}
			if got := d.stream.Until(": ping"); strings.Contains(got, "id: ") {
				t.Errorf("a gateway that is cut off told %q", got)
			}
			publish(t, a, "demo", "101")
			mend(proxy)
			d.takes(101)
			level.takes(101)
			publish(t, b, "demo", "102")
			d.takes(102)
			level.takes(102)
		})
	}
}

// TestGatewaysFrozenInTurn: devices move over three gateways, one of which is
// always frozen for a moment, while events are published. The ledger is clean.
func TestGatewaysFrozenInTurn(t *testing.T) {
	t.Parallel()
	const moment = 500 * time.Millisecond
	redis := testkit.StartRedis(t)
	var gateways []*testkit.Gateway
	for range 3 {
		gateways = append(gateways, program.StartGateway(t, args("--log", redis.URL())...))
	}
	var frozen atomic.Int32
	ledger := testkit.NewLedger("pos", 60)
	// Devices come to any gateway; publishers to one that isn't frozen, or little would be published.
	finish := connect(t, ledger, func() string { return gateways[rand.IntN(len(gateways))].Device }, time.Second)
	ledger.AwaitBegun(t)
	publishing, stop := context.WithCancel(t.Context())
	published := make(chan struct{})
	go func() {
		defer close(published)
		ledger.Publish(publishing, func() string { return gateways[(frozen.Load()+1)%3].Backend }, 600)
	}()
	for i := range 12 {
		frozen.Store(int32(i % 3))
		victim := gateways[i%3]
		victim.Stop()
		<-time.After(moment)
		victim.Cont()
	}
	stop()
	<-published
	t.Logf("%d events went through", ledger.Settle(t))
	finish()
}
