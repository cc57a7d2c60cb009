package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

//nolint:gochecknoglobals // as every flag
var (
	dialFull    = flag.Bool("dial.full", false, "dialling with -dial.devices, -dial.events and -dial.ttl, every fault: minutes")
	dialDevices = flag.Int("dial.devices", 1500, "devices of the full run")
	dialEvents  = flag.Int("dial.events", 500, "events a second of the full run")
	dialPlain   = flag.Bool("dial.plain", false, "members without the race detector, as users have them")
	dialTTL     = flag.Duration("dial.ttl", 5*time.Second, "lease_ttl of the full run")
)

// The scale of a run of dialling members.
type dialScale struct {
	devices, events int
	ttl             time.Duration
	dials           int           // a second, of each member
	slack           time.Duration // by which a device may get what was sent in time
}

func scaleOfDialling() dialScale {
	if *dialFull {
		return dialScale{devices: *dialDevices, events: *dialEvents, ttl: *dialTTL, dials: *dialDevices / 6, slack: 500 * time.Millisecond}
	}
	return dialScale{devices: 128, events: 60, ttl: 2 * time.Second, dials: 400, slack: 1500 * time.Millisecond}
}

// bound is the longest time for which a device may be without an owner when one
// of three is gone in disorder: its leases' time, until the next look of the
// others, and the dials. What a machine that runs other tests too adds is on top.
func (s dialScale) bound() time.Duration {
	extra := 30 * time.Second
	if *dialFull {
		extra = time.Second
	}
	dialling := time.Duration(s.devices/3) * time.Second / time.Duration(s.dials)
	return s.ttl + s.ttl/3 + dialling + extra
}

// A dialFleet is members that dial the devices of one ledger, which a publisher
// keeps busy.
type dialFleet struct {
	*testing.T
	program testkit.Program
	dialScale
	ledger  *testkit.Ledger
	devices *testkit.Dialled
	args    []string
	socket  bool   // the transport is websocket
	redis   string // URL; the members come to it by links of their own, if link is set
	link    func() *testkit.Proxy

	mu      sync.Mutex
	pauses  []testkit.Pause // the last one may go on
	members []*dialMember   // that run, the oldest first
	begun   int
	stop    func()
}

type dialMember struct {
	*testkit.Gateway
	name  string
	link  *testkit.Proxy // to Redis; nil without one
	quiet bool           // it can't take events now
}

// startDialFleet starts three members with further arguments, and waits until
// each device has its first position.
func startDialFleet(t *testing.T, scale dialScale, transport, redis string, link func() *testkit.Proxy, more ...string) *dialFleet {
	t.Helper()
	ledger := testkit.NewLedger("dialled", scale.devices)
	f := &dialFleet{T: t, program: program, dialScale: scale, ledger: ledger, devices: testkit.ServeDialled(t, ledger), socket: transport == "websocket", redis: redis, link: link}
	scheme := map[string]string{"websocket": "ws", "post": "http"}[transport]
	f.args = args(append([]string{
		"--owner", "ring", "--transport", transport, "--inventory", f.devices.Inventory(scheme), "--dial-schemes", scheme, "--dial-allow", "127.0.0.0/8",
		"--lease-ttl", scale.ttl.String(), "--dials-per-second", fmt.Sprint(scale.dials), "--keepalive", "1s", "--retry", "100ms", "--failover", "evidence",
	}, more...)...)
	if *dialPlain {
		var err error
		if f.program, err = testkit.BuildPlain(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		f.launch()
	}
	for _, m := range f.members {
		m.AwaitReady()
	}
	f.ledger.AwaitBegun(t)
	return f
}

// launch starts one more member.
func (f *dialFleet) launch() *dialMember {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
	m := &dialMember{name: fmt.Sprintf("member-%d", f.begun)}
	redis := f.redis
	if f.link != nil {
		m.link = f.link()
		redis = "redis://" + m.link.Addr()
	}
	m.Gateway = f.program.LaunchDialler(f.T, append([]string{"--log", redis, "--member", m.name}, f.args...)...)
	f.members = append(f.members, m)
	return m
}

// publish keeps the devices busy until the returned function is called.
func (f *dialFleet) publish() (stop func()) {
	ctx, cancel := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() { f.ledger.Publish(ctx, f.backend, f.events) })
	f.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.Cleanup(f.stop)
	return f.stop
}

// backend is a member that takes events now.
func (f *dialFleet) backend() string {
	all := slices.DeleteFunc(f.serving(), func(m *dialMember) bool { return !m.Started() })
	if len(all) == 0 {
		return "http://127.0.0.1:1"
	}
	return all[rand.IntN(len(all))].Backend
}

// serving are the members that run and aren't held up.
func (f *dialFleet) serving() []*dialMember {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.members), func(m *dialMember) bool { return m.quiet })
}

func (f *dialFleet) hush(m *dialMember, quiet bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.quiet = quiet
}

// drop takes a member out of the list: it has ended, or is about to.
func (f *dialFleet) drop(m *dialMember) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = slices.DeleteFunc(f.members, func(o *dialMember) bool { return o == m })
}

func (f *dialFleet) names() (names []string) {
	for _, m := range f.serving() {
		names = append(names, m.name)
	}
	return names
}

// settled waits until every member that runs finds that each shard has the owner
// that it should have, and, with WebSockets, until each device has a connection
// from one of them.
func (f *dialFleet) settled() {
	f.Helper()
	names, obstacle := f.names(), ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if obstacle = f.agreed(names); obstacle == "" && f.socket {
			obstacle = f.connected(names)
		}
		if obstacle == "" {
			return
		}
	}
	f.Fatalf("%v don't come to share all devices: %s", names, obstacle)
}

// connected says which devices have no connection from one of these members.
func (f *dialFleet) connected(names []string) (obstacle string) {
	for i, owner := range f.devices.Owners() {
		if !slices.Contains(names, owner) {
			obstacle += fmt.Sprintf(" device %d has %q;", i, owner)
		}
	}
	return obstacle[:min(len(obstacle), 500)]
}

// agreed asks the members who is there and what is on its way, and says what
// isn't as it should be.
func (f *dialFleet) agreed(names []string) (obstacle string) {
	f.Helper()
	for _, m := range f.serving() {
		if !m.Started() {
			return m.name + " has not started"
		}
		var status struct {
			Moving  int
			Members []struct{ Name string }
		}
		code, text := testkit.Get(f.T, m.Backend+"/v1/dial")
		if code != 200 || json.Unmarshal([]byte(text), &status) != nil {
			f.Fatalf("%s says %d %s of its shards", m.name, code, text)
		}
		if status.Moving > 0 || len(status.Members) != len(names) {
			return text
		}
		for _, other := range status.Members {
			if !slices.Contains(names, other.Name) {
				return text
			}
		}
	}
	return ""
}

// An outcome is what the devices saw of a fault.
type outcome struct {
	fault           string
	moved           int // devices that have another owner than before
	redialled, most int // devices that were dialled, and how often one of them
	without         time.Duration
	late            bool // a member came too late for leases, which others may have taken
}

// during does something, waits until all is well again, and says what the
// devices saw meanwhile. A device whose owner is of no use counts as being
// without a connection until it is dialled again, if it is, whatever becomes of
// its socket; useless may be nil.
func (f *dialFleet) during(fault string, useless *dialMember, do func()) outcome {
	f.Helper()
	before, lapses, from := f.devices.Owners(), f.lapses(), time.Now()
	do()
	f.settled()
	o, to := outcome{fault: fault, moved: testkit.Moved(before, f.devices.Owners())}, time.Now()
	for m, n := range f.lapses() {
		o.late = o.late || n > lapses[m]
	}
	for i, calls := range f.devices.Calls() {
		if n := testkit.Redials(calls, from, to); n > 0 {
			o.redialled++
			o.most = max(o.most, n)
		}
		if useless != nil && before[i] == useless.name && testkit.Redials(calls, from, to) > 0 {
			calls = slices.DeleteFunc(calls, func(c testkit.Call) bool { return !c.Came.After(from) })
		}
		o.without = max(o.without, testkit.LongestWithout(calls, from, to))
	}
	f.Logf("%-40s %4d moved, %4d redialled (at most %d times), %6v without a connection at the most",
		fault, o.moved, o.redialled, o.most, o.without.Round(10*time.Millisecond))
	return o
}

// lapses is how many leases of each member that serves have run out or were taken.
func (f *dialFleet) lapses() map[*dialMember]float64 {
	f.Helper()
	n := make(map[*dialMember]float64)
	for _, m := range f.serving() {
		n[m] = m.Metric(`downlink_lease_lost_total{reason="expired"}`) + m.Metric(`downlink_lease_lost_total{reason="taken"}`)
	}
	return n
}

// wantQuick holds the time without a connection against the bound.
func (f *dialFleet) wantQuick(o outcome) {
	f.Helper()
	if o.without > f.bound() {
		f.Errorf("%s: a device was without a connection for %v, at most %v are allowed", o.fault, o.without, f.bound())
	}
}

// wantStill holds that no device was dialled again. Beside other tests one of three
// members may come too late for its leases, which then move.
func (f *dialFleet) wantStill(o outcome) {
	f.Helper()
	most := f.dialScale.devices / 2
	if *dialFull {
		most = 0
	}
	if o.redialled > most {
		f.Errorf("%s: %d devices were dialled again", o.fault, o.redialled)
	}
}

// judge ends the publishing and holds against the promise what each device has
// got and written down.
func (f *dialFleet) judge() {
	f.Helper()
	f.stop()
	events := f.ledger.Settle(f.T)
	n, calls, refused := 0, 0, 0
	for i, log := range f.devices.Calls() {
		for _, c := range log {
			calls++
			if c.Refused {
				refused++
			}
		}
		for _, fault := range testkit.CallFaults(log, f.slack, f.pauses...) {
			if n++; n < 10 {
				f.Errorf("device %d: %s", i, fault)
			}
		}
	}
	f.Logf("%d devices, %d events, %d calls of which %d of an owner of the past were refused, %d repeats by POST; resyncs %v",
		f.dialScale.devices, events, calls, refused, f.devices.Repeats(), f.ledger.Resyncs())
}

func (f *dialFleet) kill(m *dialMember) {
	f.drop(m)
	m.Kill9()
}

// terminate ends a member in order.
func (f *dialFleet) terminate(m *dialMember) {
	f.Helper()
	f.drop(m)
	if code := m.Terminate(); code != 0 {
		f.Errorf("%s ended with %d", m.name, code)
	}
}

// freeze stops a member and returns after a while; thaw lets it go on.
func (f *dialFleet) freeze(m *dialMember, d time.Duration) {
	f.hush(m, true)
	m.Stop()
	f.pauses = append(f.pauses, testkit.Pause{Member: m.name, From: time.Now().Add(20 * time.Millisecond)})
	<-time.After(d)
}

func (f *dialFleet) thaw(m *dialMember) {
	f.pauses[len(f.pauses)-1].To = time.Now()
	m.Cont()
	f.hush(m, false)
}

// withoutLeases lets a member renew neither leases nor its membership until others
// have dialled some of its devices, and for a while after that, though what is
// published goes on reaching it: it has something to send, and mustn't.
func (f *dialFleet) withoutLeases(m *dialMember, d time.Duration) {
	f.Helper()
	before := f.devices.Owners()
	m.link.StallSaying(":own:", ":members")
	testkit.Eventually(f.T, "another member dials its devices", func() bool {
		for i, owner := range f.devices.Owners() {
			if before[i] == m.name && owner != "" && owner != m.name {
				return true
			}
		}
		return !f.socket // who POSTs has no connections
	})
	<-time.After(d)
	m.link.Resume()
}
