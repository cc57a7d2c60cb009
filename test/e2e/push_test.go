package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

var (
	pushFull    = flag.Bool("push.full", false, "push to -push.devices at -push.rate, without the race detector: a minute, for a machine that does nothing else")
	pushN       = flag.Int("push.devices", 1000, "devices of the full run")
	pushPerSec  = flag.Int("push.rate", 2000, "pushes a second of the full run")
	pushSeconds = flag.Int("push.seconds", 8, "seconds of each of its five phases")
)

// TestPush: owner none. A tenth of the devices is dead and a tenth slow; a gateway
// is killed in the middle. Every call gets an honest answer or a broken
// connection, a producer that repeats with its key loses nothing, and the healthy
// devices don't notice.
func TestPush(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	p := startPushing(t)
	everybody := func(int) bool { return true }
	onlyHealthy := func(i int) bool { return temperOf(i) == healthy }
	share := 99
	if !*pushFull {
		share = 50 // of so few pushes, beside other tests, the slowest says nothing
	}
	for try := 1; ; try++ { // a machine that is busy for a moment; who waits for others does so each time
		var alone, beside []time.Duration
		for range p.rounds { // in turns, so that what the machine does meanwhile touches both
			alone = append(alone, p.phase(onlyHealthy, nil)...)
			beside = append(beside, p.phase(everybody, nil)...)
		}
		a, b := within(share, alone), within(share, beside)
		t.Logf("healthy devices: %d %% within %v alone (%d pushes), within %v beside dead and slow ones (%d)", share, a, len(alone), b, len(beside))
		if b <= a*2+500*time.Millisecond {
			break
		}
		if try == 5 {
			t.Errorf("healthy devices wait for others: %d %% within %v alone, within %v beside them", share, a, b)
			break
		}
	}
	p.phase(everybody, p.gateways[0].Kill9)
	p.judge()
}

// A pushing is producers, gateways and devices.
type pushing struct {
	*testing.T
	devices  *pushDevices
	gateways []*testkit.Gateway
	client   *http.Client
	n, rate  int
	rounds   int
	lasts    time.Duration

	number int // of the last event
	events []*pushEvent
}

// A pushEvent is what its producer was told, and knows.
type pushEvent struct {
	key, device string
	temper      temper
	delivered   int // answers that said so
	unsent      int // answers that said that nothing was sent
	doubtful    int // answers that said that it may have been, and broken connections
	odd         []string
}

func startPushing(t *testing.T) *pushing {
	t.Helper()
	p := &pushing{T: t, n: 40, rate: 60, rounds: 1, lasts: 700 * time.Millisecond}
	by, limit, late := program, 1500*time.Millisecond, 1100*time.Millisecond
	if *pushFull {
		p.n, p.rate, p.rounds, p.lasts = *pushN, *pushPerSec, 2, time.Duration(*pushSeconds)*time.Second
		limit, late = 5*time.Second, 2*time.Second
		var err error
		if by, err = testkit.BuildPlain(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	p.devices = startPushDevices(t, p.n, late)
	file := filepath.Join(t.TempDir(), "devices.json")
	write(t, file, p.devices.inventory)
	for range 3 {
		p.gateways = append(p.gateways, by.LaunchDialler(t, "--owner", "none", "--inventory", file,
			"--dial-schemes", "http", "--dial-allow", "127.0.0.0/8", "--post-timeout", limit.String(), "--push-wait", "500ms"))
	}
	for _, g := range p.gateways {
		g.AwaitReady()
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 4096}
	p.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return p
}

// phase pushes at the rate of all devices to those that are meant, does something
// in the middle, waits until each event is delivered or given up, and returns how
// long first calls to healthy devices took.
func (p *pushing) phase(meant func(device int) bool, do func()) []time.Duration {
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	total := int(p.lasts.Seconds() * float64(p.rate))
	began := time.Now()
	for i := range total {
		<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(p.rate))))
		if do != nil && i == total/2 {
			all.Go(do)
		}
		device := i % p.n
		if !meant(device) {
			continue
		}
		p.number++
		e := &pushEvent{key: fmt.Sprint("event-", p.number), device: fmt.Sprint("pos-", device), temper: temperOf(device)}
		p.events = append(p.events, e)
		first := i % len(p.gateways)
		all.Go(func() {
			d, ok := p.deliver(e, first)
			if ok && e.temper == healthy {
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return took
}

// deliver is a producer that repeats with its key, each time at the next gateway,
// until the device has the event; with a dead one it loses patience. It returns
// how long the first call took, if that one delivered it.
func (p *pushing) deliver(e *pushEvent, gateway int) (first time.Duration, ok bool) {
	began := time.Now()
	for try := 0; ; try++ {
		start := time.Now()
		again := p.call(e, p.gateways[(gateway+try)%len(p.gateways)].Backend)
		switch {
		case e.delivered > 0:
			return time.Since(start), try == 0
		case e.temper != healthy && e.temper != slow && try == 1, time.Since(began) > 2*time.Minute:
			return 0, false
		}
		<-time.After(again/2 + rand.N(again))
	}
}

// call makes one push, and notes what is known afterwards. It returns after how
// long to repeat it.
func (p *pushing) call(e *pushEvent, backend string) time.Duration {
	body := `{"device":"` + e.device + `","type":"order.push","payload":` + payload + `}`
	req, err := http.NewRequestWithContext(p.Context(), http.MethodPost, backend+"/v1/push", strings.NewReader(body))
	if err != nil {
		p.Error(err)
		return time.Second
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["idempotency-key"] = []string{e.key} // so spelt, net/http doesn't repeat it by itself
	resp, err := p.client.Do(req)
	if err != nil {
		e.doubtful++
		return 50 * time.Millisecond
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.doubtful++
		return 50 * time.Millisecond
	}
	var a struct {
		Sent *bool `json:"sent"`
		Safe *bool `json:"repeat_safe"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		e.odd = append(e.odd, string(text))
		return time.Second
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		e.delivered++
	case a.Sent == nil || a.Safe == nil || *a.Sent == *a.Safe:
		e.odd = append(e.odd, string(text))
	case *a.Sent:
		e.doubtful++
	default:
		e.unsent++
	}
	if resp.Header.Get("Retry-After") != "" {
		return time.Second
	}
	return 100 * time.Millisecond
}

// judge holds what producers were told against what devices got.
func (p *pushing) judge() {
	count := map[string]int{}
	for _, e := range p.events {
		got := p.devices.received(e.key)
		count["calls that delivered"] += e.delivered
		count["calls of which nothing was sent"] += e.unsent
		count["calls that left it open"] += e.doubtful
		count["second deliveries"] += max(got-1, 0)
		switch {
		case len(e.odd) > 0:
			p.Errorf("%s to %s: %s", e.key, e.device, e.odd[0])
		case got < e.delivered:
			p.Errorf("%s to %s: %d calls say that it was delivered, and it was %d times", e.key, e.device, e.delivered, got)
		case got > e.delivered+e.doubtful:
			p.Errorf("%s to %s came %d times: of %d calls it was said that nothing was sent", e.key, e.device, got, e.unsent)
		case got == 0 && (e.temper == healthy || e.temper == slow):
			p.Errorf("%s to %s was lost", e.key, e.device)
		}
	}
	p.Logf("%d events: %v", len(p.events), count)
}

// within is the time in which so many percent were done.
func within(percent int, took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*percent/100]
}
