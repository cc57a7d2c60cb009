package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// A behind is gateways on one Redis behind a load balancer. The third gateway
// isn't in the load balancer's file at first; publishers use its back end.
type behind struct {
	t        *testing.T
	gateways []*testkit.Gateway
	lb       *testkit.LoadBalancer
	web      *http.Client // HTTP/1.1
}

// TestLoadBalancer runs the configuration files of deploy/loadbalancers: the real
// HAProxy and nginx in front of gateways, with shortened times.
func TestLoadBalancer(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, [3]string) *testkit.LoadBalancer{
		"haproxy": testkit.StartHAProxy, "nginx": testkit.StartNginx,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBehind(t, start)
			quiet := b.quietStreams()
			b.passesThrough()
			b.isPrompt(10, 20)

			ledger := testkit.NewLedger("pos", 24)
			ledger.Through(b.lb.Client(true))
			finish := connect(t, ledger, func() string { return b.lb.URL }, 0)
			ledger.AwaitBegun(t)
			ctx, stop := context.WithCancel(t.Context())
			published := make(chan struct{})
			go func() {
				defer close(published)
				ledger.Publish(ctx, func() string { return b.gateways[2].Backend }, 100)
			}()
			b.gatewayIsKilled(quiet, ledger)
			b.idleStreamsLive(quiet)
			b.reloads(quiet, ledger)
			b.drains(ledger)
			stop()
			<-published
			t.Logf("%d events went through", ledger.Settle(t))
			finish()
		})
	}
}

func startBehind(t *testing.T, start func(testing.TB, [3]string) *testkit.LoadBalancer) *behind {
	redis := testkit.StartRedis(t)
	b := &behind{t: t}
	for range 3 {
		b.gateways = append(b.gateways, program.LaunchGateway(t,
			args("--log", redis.URL(), "--trusted-proxies", "127.0.0.1", "--connections-per-address", "1000", "--drain-wait", "3s", "--drain-rate", "100")...))
	}
	for _, g := range b.gateways {
		g.AwaitReady()
	}
	b.lb = start(t, [3]string{address(b.gateways[0]), address(b.gateways[1]), testkit.NobodyHere})
	b.web = b.lb.Client(false)
	return b
}

func address(g *testkit.Gateway) string { return strings.TrimPrefix(g.Device, "http://") }

// An overseen stream is read until it ends.
type overseen struct {
	device string
	header http.Header
	began  time.Time
	ended  chan struct{}
	leave  func()
}

func (w *overseen) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// request is one for a stream, by a device that claims an address and takes gzip.
func (b *behind) request(ctx context.Context, device string) *http.Request {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.lb.URL+"/events?device="+device, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	req.Header.Set("Forwarded", "for=203.0.113.8")
	return req
}

// watch opens a stream, waits for its first position, and hands each further line
// to read, which may be nil.
func (b *behind) watch(device string, read func(line string)) *overseen {
	b.t.Helper()
	w, err := b.open(device, read)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// open is watch; the error says why there is no stream.
func (b *behind) open(device string, read func(line string)) (*overseen, error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := b.web.Do(b.request(ctx, device))
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Downlink-Refused") != "" {
		cancel()
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s %v", device, resp.Status, resp.Header)
	}
	w := &overseen{device: device, header: resp.Header, began: time.Now(), ended: make(chan struct{})}
	w.leave = func() { cancel(); resp.Body.Close(); <-w.ended }
	first := make(chan struct{})
	go func() {
		defer close(w.ended)
		lines := bufio.NewScanner(resp.Body)
		begun := false
		for lines.Scan() {
			switch {
			case !begun && strings.HasPrefix(lines.Text(), "data: "):
				begun = true
				close(first)
			case begun && read != nil:
				read(lines.Text())
			}
		}
	}()
	b.t.Cleanup(w.leave)
	select {
	case <-first:
		return w, nil
	case <-w.ended:
		return nil, fmt.Errorf("the stream of %s ended before its first position", device)
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("the beginning of the stream of %s is held back: %v", device, resp.Header)
	}
}

// holds reports whether a gateway holds a stream of the device.
func holds(t *testing.T, g *testkit.Gateway, device string) bool {
	t.Helper()
	status, report := testkit.Get(t, g.Backend+"/v1/devices/"+device)
	if status != http.StatusOK {
		t.Fatalf("what is known of %s: %d %s", device, status, report)
	}
	return !strings.Contains(report, `"sessions":[]`)
}

// quietStreams are six devices for whom nothing is published; and more, as long as
// one of the two gateways has fewer than two of them.
func (b *behind) quietStreams() (all []*overseen) {
	count := [2]int{}
	for n := 0; n < 6 || min(count[0], count[1]) < 2; n++ {
		if n == 66 {
			b.t.Fatalf("of %d streams %v went to the two gateways", n, count)
		}
		if n >= 6 { // a gateway that answers nothing for a moment gets none, and some seconds later again
			<-time.After(time.Second)
		}
		w := b.watch(fmt.Sprint("quiet-", n), nil)
		for i := range count {
			if holds(b.t, b.gateways[i], w.device) {
				count[i]++
			}
		}
		all = append(all, w)
	}
	return all
}

// passesThrough: the stream is as the gateway made it, nothing but devices' paths is
// led in, and the gateway learns the device's address and not what it claims.
func (b *behind) passesThrough() {
	for _, path := range []string{"/", "/readyz", "/metrics", "/events/", "/v1/events"} {
		resp, err := b.web.Get(b.lb.URL + path)
		if err != nil {
			b.t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			b.t.Errorf("%s is answered %s", path, resp.Status)
		}
	}
	w := b.watch("curious", nil)
	if got := w.header.Get("Content-Type"); got != "text/event-stream" {
		b.t.Errorf("Content-Type is %q", got)
	}
	if got := w.header.Get("Content-Encoding"); got != "" {
		b.t.Errorf("Content-Encoding is %q", got)
	}
	if w.header.Get("Downlink-Groups") == "" {
		b.t.Errorf("no Downlink-Groups in %v", w.header)
	}
	b.believesNoClaim()
}

// believesNoClaim: while an address has no more room, a device behind it doesn't get in
// by claiming another one.
func (b *behind) believesNoClaim() {
	limit := func(change string) {
		for _, g := range b.gateways[:2] {
			req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPatch, g.Backend+"/v1/limits",
				strings.NewReader(`{"connections_per_address":`+change+`}`))
			if err != nil {
				b.t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := b.web.Do(req)
			if err != nil {
				b.t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.t.Fatalf("changing the limit: %s", resp.Status)
			}
		}
	}
	limit("1")
	defer limit("null")
	req := b.request(b.t.Context(), "claimant")
	req.Header.Set("X-Forwarded-For", "203.0.113.10") // that nobody else has claimed
	req.Header.Set("Forwarded", "for=203.0.113.11")
	resp, err := b.web.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("Downlink-Refused"); got != "connections_per_address" {
		b.t.Errorf("a device that claims another address gets %s, refused %q", resp.Status, got)
	}
}

// isPrompt: events to devices are there, half of them within 200 ms, though nothing
// follows them. A busy machine has five attempts; what holds events back does so in
// each.
func (b *behind) isPrompt(devices, rounds int) {
	var mu sync.Mutex
	sent := make(map[string]time.Time)
	var took []time.Duration
	for i := range devices {
		b.watch(fmt.Sprint("prompt-", i), func(line string) {
			mu.Lock()
			defer mu.Unlock()
			if at, ok := sent[strings.TrimPrefix(line, "data: ")]; ok {
				took = append(took, time.Since(at))
			}
		})
	}
	var median time.Duration
	for attempt := range 5 {
		mu.Lock()
		took = nil
		mu.Unlock()
		for n := range devices * rounds {
			payload := fmt.Sprintf("%d/%d", attempt, n)
			mu.Lock()
			sent[payload] = time.Now()
			mu.Unlock()
			publish(b.t, b.gateways[2], fmt.Sprint("prompt-", n%devices), payload)
		}
		testkit.Eventually(b.t, "all events have arrived", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(took) == devices*rounds
		})
		slices.Sort(took)
		median = took[len(took)/2]
		b.t.Logf("an event took %v at the median, %v at p99, %v at most", median, took[len(took)*99/100-1], took[len(took)-1])
		if median <= 200*time.Millisecond {
			return
		}
	}
	b.t.Errorf("an event took %v at the median", median)
}

// gatewayIsKilled: its streams end at once, and its devices go on at another.
func (b *behind) gatewayIsKilled(quiet []*overseen, ledger *testkit.Ledger) {
	var lost []*overseen
	for _, w := range quiet {
		if holds(b.t, b.gateways[0], w.device) {
			lost = append(lost, w)
		}
	}
	if len(lost) == 0 || len(lost) == len(quiet) {
		b.t.Fatalf("%d of %d streams went to one of two gateways", len(lost), len(quiet))
	}
	killed := time.Now()
	b.gateways[0].Kill9()
	testkit.Eventually(b.t, "the streams of the killed gateway have ended", func() bool {
		return !slices.ContainsFunc(lost, func(w *overseen) bool { return !w.over() })
	})
	b.t.Logf("the streams of a killed gateway ended after %v", time.Since(killed))
	b.goesOn(ledger)
}

// goesOn waits until all that was published until now is finished.
func (b *behind) goesOn(ledger *testkit.Ledger) {
	b.t.Helper()
	goal := ledger.Acked() + 100
	testkit.Eventually(b.t, "devices go on", func() bool { return ledger.Finished() >= goal })
}

// idleStreamsLive: those that the killed gateway didn't hold are twice as old as the
// load balancer lets a silent stream become.
func (b *behind) idleStreamsLive(quiet []*overseen) {
	b.t.Logf("quiet streams are %v old", time.Since(quiet[len(quiet)-1].began))
	testkit.Eventually(b.t, "they are old enough", func() bool { return time.Since(quiet[len(quiet)-1].began) > 2*b.lb.Silence() })
	for _, w := range quiet {
		if here := holds(b.t, b.gateways[1], w.device); here && w.over() {
			b.t.Errorf("the stream of %s has ended", w.device)
		} else if !here && !w.over() {
			b.t.Errorf("nobody holds the stream of %s", w.device)
		}
	}
}

// reloads: open streams stay where they are until the old process is ended;
// newcomers get to the gateway that the file has now.
func (b *behind) reloads(quiet []*overseen, ledger *testkit.Ledger) {
	lasting := slices.DeleteFunc(slices.Clone(quiet), (*overseen).over)
	if len(lasting) == 0 {
		b.t.Fatal("no stream is left")
	}
	began := time.Now()
	b.lb.Reload([3]string{testkit.NobodyHere, address(b.gateways[1]), address(b.gateways[2])})
	n := 0
	testkit.Eventually(b.t, "a newcomer gets to the new gateway", func() bool {
		n++
		device := fmt.Sprint("new-", n)
		b.web.CloseIdleConnections()
		_, err := b.open(device, nil) // its stream may be one of those that the old process ends
		return err == nil && holds(b.t, b.gateways[2], device)
	})
	ended := slices.ContainsFunc(lasting, (*overseen).over)
	if early := time.Since(began); ended && early < b.lb.HardStop()-time.Second {
		b.t.Errorf("a stream has ended %v after the reload", early)
	}
	testkit.Eventually(b.t, "the old process has ended its streams", func() bool {
		return !slices.ContainsFunc(lasting, func(w *overseen) bool { return !w.over() })
	})
	b.t.Logf("the old process ended its streams %v after the reload", time.Since(began))
	b.goesOn(ledger)
}

// drains: one of the two gateways goes out of service in turns: each stream has its
// last word before it ends, and all devices go on at the other gateway.
func (b *behind) drains(ledger *testkit.Ledger) {
	told := make(chan struct{})
	var leaver *overseen
	testkit.Eventually(b.t, "a device has come to the gateway that will leave", func() bool {
		w := b.watch("leaver", func(line string) {
			select {
			case <-told:
			default:
				if strings.HasPrefix(line, "retry: ") {
					close(told)
				}
			}
		})
		here := holds(b.t, b.gateways[1], "leaver")
		if here {
			leaver = w
		} else {
			w.leave()
		}
		return here
	})
	began := time.Now()
	if code := b.gateways[1].Terminate(); code != 0 {
		b.t.Errorf("exit code %d", code)
	}
	b.t.Logf("a gateway went out of service in %v", time.Since(began))
	<-leaver.ended
	select {
	case <-told:
	default:
		b.t.Error("a stream was cut before its gateway has told its device when to come back")
	}
	b.goesOn(ledger)
}
