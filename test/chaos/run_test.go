package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/event"
	"downlink/internal/testkit"
)

const shards = 32

// settings are what a run is made from.
type settings struct {
	topology string
	seed     uint64
	length   time.Duration // how long faults are injected
	rate     int           // events a second
	devices  int
	window   time.Duration
	brief    bool // no fault that lasts longer than the window
}

// A run is one world under faults.
type run struct {
	settings
	tb        testing.TB
	began     time.Time
	stay      time.Duration // about how long a device stays at a gateway
	chronicle *chronicle
	store     *store
	home      context.Context // ends when nobody should be away any more
	fleet     *fleet
	devices   []*device
	lanes     []*lane
	stalls    *stalls
	done      map[string]int // faults by kind
	starts    int            // of the embedded log
	loose     []string       // settings of the gateways that the seed chose
}

func newRun(tb testing.TB, s settings) *run {
	program(tb)
	r := &run{
		settings: s, tb: tb, began: time.Now(), stay: 8 * time.Second,
		chronicle: newChronicle(s.window), done: make(map[string]int),
	}
	r.begin()
	r.began = time.Now()
	r.people()
	tb.Logf("%d devices, %d gateways with %v, %d events a second", len(r.devices), r.store.gateways, r.loose, r.rate)
	return r
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// stored is when an ID was given out: all processes have one clock.
func (r *run) stored(id event.ID) time.Duration { return time.UnixMilli(int64(id.Ms)).Sub(r.began) }

// front is the address of a gateway for devices, backend one for publishers.
func (r *run) front(rng *rand.Rand) string {
	return "http://" + r.fleet.pick(rng).front.Addr()
}

func (r *run) backend(rng *rand.Rand) string { return r.fleet.pick(rng).backend }

// begin starts the servers. What the topology leaves open, the seed chooses.
func (r *run) begin() {
	args := []string{
		"--shards", itoa(shards), "--window", r.window.String(), "--sweep-interval", "1s",
		"--retry", "200ms", "--keepalive", "1s", "--write-timeout", "5s", "--publish-timeout", "2s",
		"--shutdown-timeout", "3s", "--drain-rate", "500", "--drain-deadline", "10s", "--hot-window-bytes", "2MiB",
	}
	r.store, r.loose = newStore(r)
	args = append(args, r.loose...)
	r.fleet = &fleet{}
	for range r.store.gateways {
		url, link := r.store.door()
		r.fleet.members = append(r.fleet.members, newMember(r.tb, link, append(args, "--log", url)...))
	}
}

// people makes devices and lanes.
func (r *run) people() {
	all := &lane{name: "all", target: "*", shard: -1}
	board := &lane{name: "board", target: "*", shard: -1, key: "board"}
	r.lanes = append(r.lanes, all, board)
	for i := range r.settings.devices {
		name := fmt.Sprintf("pos-%d", i)
		shard := testkit.Shard(name, shards)
		mine := []*lane{{name: "own", target: name, shard: shard}}
		if i%10 == 0 {
			mine = append(mine, &lane{name: "one", target: name, shard: shard})
		}
		if i%2 == 0 { // whoever is ever behind is among them
			mine = append(mine, &lane{name: "price", target: name, shard: shard, key: "price"})
		}
		if i%10 == 5 && r.store.raw {
			mine = append(mine, &lane{name: "raw", target: name, shard: shard})
		}
		r.lanes = append(r.lanes, mine...)
		d := &device{
			witness: newWitness(name, shard, r.chronicle, r.stored, append(mine, all, board)...), run: r,
			rng: rand.New(rand.NewPCG(r.seed, uint64(i))), manner: mannerOf(i),
		}
		d.client = client.Client{Device: name, Cursors: &client.MemoryStore{}, Silence: 4 * time.Second, Poll: i%12 == 7}
		if i%15 == 1 {
			d.client.Cursors = &client.FileStore{Path: r.tb.TempDir() + "/cursor"}
		}
		r.devices = append(r.devices, d)
	}
}

// mannerOf: six of ten devices are steady.
func mannerOf(i int) manner {
	switch i % 10 {
	case 2:
		return slow
	case 4:
		return dozing
	case 6, 8:
		return absent
	}
	return steady
}

// live connects the devices, publishes, injects the faults, and returns when
// everything that is owed has come, or why it hasn't.
func (r *run) live() {
	ctx, leave := context.WithCancel(context.Background())
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	r.home = publishing
	var others sync.WaitGroup
	defer others.Wait()
	defer leave()
	for _, d := range r.devices {
		others.Go(func() { d.connect(ctx) })
	}
	testkit.Eventually(r.tb, "every device has got its first position", func() bool {
		for _, d := range r.devices {
			if !d.started() {
				return false
			}
		}
		return true
	})
	published := r.publish(publishing)
	r.stalls = watchStalls(publishing, r.handled)
	if r.store.masters != nil {
		others.Go(func() { r.watchMasters(publishing) })
	}
	newSchedule(r).play()
	stop()
	await(r.tb, published, "the publishers' last events are accepted")
	r.settle()
}

func (d *device) started() bool {
	d.witness.mu.Lock()
	defer d.witness.mu.Unlock()
	return d.begun
}

// publish starts the publishers; the channel is closed when all have ended.
func (r *run) publish(ctx context.Context) <-chan struct{} {
	const batchers = 4
	var all sync.WaitGroup
	start := func(seed uint64, lanes []*lane, rate float64, how func(*publisher) func(int)) {
		p := newPublisher(r, lanes, 1<<32+seed)
		all.Go(func() {
			p.publish(ctx, rate, how(p))
			p.web.CloseIdleConnections()
		})
	}
	own := r.named("own")
	for b := range batchers {
		var lanes []*lane
		for i := b; i < len(own); i += batchers {
			lanes = append(lanes, own[i])
		}
		start(uint64(b), lanes, float64(r.rate)/batchers, func(p *publisher) func(int) { return p.batch })
	}
	start(10, r.named("one"), 10, func(p *publisher) func(int) { return each(p.single) })
	start(11, r.named("all"), 0.7, func(p *publisher) func(int) { return each(p.single) })
	start(13, r.named("board"), 1, func(p *publisher) func(int) { return each(p.single) })
	start(14, r.named("price"), float64(r.rate)/4, func(p *publisher) func(int) { return p.batch })
	if raw := r.named("raw"); len(raw) > 0 {
		start(12, raw, 15, func(p *publisher) func(int) { return each(p.raw) })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	return ended
}

func each(one func(int)) func(int) {
	return func(n int) {
		for range n {
			one(1)
		}
	}
}

func (r *run) named(name string) (found []*lane) {
	for _, l := range r.lanes {
		if l.name == name {
			found = append(found, l)
		}
	}
	return found
}

// settleTime is how long everything that is owed may take to arrive when all
// faults are mended: a device may be away, and back off, meanwhile.
const settleTime = 90 * time.Second

// settle waits until every device has what it is owed.
func (r *run) settle() {
	deadline := time.Now().Add(settleTime)
	for {
		missing := r.missing()
		if len(missing) == 0 || len(r.chronicle.found()) > 20 {
			return
		}
		if time.Now().After(deadline) {
			for _, text := range missing {
				r.chronicle.fault("%s", text)
			}
			return
		}
		wait(context.Background(), 50*time.Millisecond)
	}
}

func (r *run) missing() (texts []string) {
	for _, d := range r.devices {
		if text := d.missing(); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

func (r *run) handled() (events int) {
	for _, d := range r.devices {
		n, _, _, _ := d.tally()
		events += n
	}
	return events
}

func await(tb testing.TB, done <-chan struct{}, what string) {
	tb.Helper()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		tb.Fatalf("waited in vain: %s", what)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
