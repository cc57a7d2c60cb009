package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

//nolint:gochecknoglobals // as every flag
var (
	rolloutDevices = flag.Int("rollout.devices", 180, "devices of the rollout")
	rolloutEvents  = flag.Int("rollout.events", 100, "events a second")
	rolloutRate    = flag.Int("rollout.rate", 30, "drain_rate")
	rolloutTimes   = flag.Int("rollout.times", 1, "how often all three gateways are exchanged")
	rolloutRetry   = flag.Duration("rollout.retry", 300*time.Millisecond, "retry")
	rolloutJudge   = flag.Bool("rollout.judge", false, "hold the most reconnects in a second against the rate, and times against their bounds: for a machine that does nothing else")
	rolloutOther   = flag.String("rollout.other", "", "absolute path of another version's program: every second gateway is one")
	rolloutData    = flag.String("rollout.data", "", "directory for the data of the plots")
)

// Voyages are the devices' connections, as the devices see them.
type voyages struct {
	mu      sync.Mutex
	devices []voyage
	here    int           // devices that have a stream
	back    []time.Time   // each time that a device got a stream again
	longest time.Duration // without a stream
	over    time.Duration // beyond what the device was told to wait: the most
	broken  int           // streams that ended in disorder
	failed  int           // tries that got no stream
}

type voyage struct {
	in   bool
	left time.Time     // when its last stream ended
	told time.Duration // after which time to come back
}

func (v *voyages) note(i int, s client.Status) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	d := &v.devices[i]
	switch {
	case s.Connected:
		v.here++
		d.in = true
		if !d.left.IsZero() {
			v.back = append(v.back, now)
			away := now.Sub(d.left)
			v.longest, v.over = max(v.longest, away), max(v.over, away-d.told)
		}
	case d.in:
		v.here--
		*d = voyage{left: now, told: s.Wait}
		if s.Err != nil {
			v.broken++
		}
	case !d.left.IsZero():
		v.failed++
	}
}

// returned is each time so far that a device got a stream again.
func (v *voyages) returned() []time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.back)
}

// all reports whether each device has a stream.
func (v *voyages) all() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.here == len(v.devices)
}

// drainWait is for how long a gateway that goes serves on.
const drainWait = time.Second

// A rollout exchanges three gateways behind HAProxy, one after the other, while
// devices are connected and events are published.
type rollout struct {
	*testing.T
	rate    int // drain_rate
	args    []string
	front   *front
	voyages *voyages
	fleet   []*testkit.Gateway // those that run, the oldest first
	begun   int                // gateways that were started

	began       time.Time
	connections []map[string]int // by gateway, each second
	leaving     []time.Duration  // how long each took to go out of service
}

// launch starts one more gateway.
func (r *rollout) launch() {
	r.Helper()
	build := program
	if *rolloutOther != "" && r.begun%2 == 1 {
		build = program.Other(*rolloutOther)
	}
	r.fleet = append(r.fleet, r.front.launch(r.T, build, r.begun, r.args...))
	r.begun++
}

// exchange starts one more gateway and ends the oldest.
func (r *rollout) exchange() {
	r.Helper()
	r.launch()
	old := r.fleet[0]
	r.fleet = r.fleet[1:]
	from, before := time.Now(), r.voyages.returned()
	old.Signal(syscall.SIGTERM)
	if code := old.AwaitExit(); code != 0 || !strings.Contains(old.Log(), "left=0") {
		r.Errorf("a gateway ended with %d, and says:\n%s", code, old.Log())
	}
	r.leaving = append(r.leaving, time.Since(from).Round(100*time.Millisecond))
	testkit.Eventually(r.T, "everybody has a stream again", r.voyages.all)
	back := r.voyages.returned()[len(before):]
	if len(back) < len(r.voyages.devices)/6 {
		r.Fatalf("of %d devices %d came from a gateway that was one of three", len(r.voyages.devices), len(back))
	}
	// Holds on a busy machine, too: who notices late doesn't come too early.
	if took := back[len(back)-1].Sub(from); r.rate > 0 && took < drainWait+time.Duration(len(back))*time.Second/time.Duration(r.rate)*8/10 {
		r.Errorf("%d came back within %v, at %d a second", len(back), took, r.rate)
	}
}

// sample notes each second how many connections each gateway has.
func (r *rollout) sample(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		moment := make(map[string]int)
		for name, m := range r.front.look() {
			moment[name] = m.connections
		}
		r.connections = append(r.connections, moment)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// TestRollout: three gateways behind HAProxy are exchanged. Nothing is lost or
// repeated, and devices come back at the rate that was set; and, to show the
// difference, what happens without one. docs/operate/rollout.md has the full run.
func TestRollout(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	for _, way := range []struct {
		name string
		rate int
	}{{"turns", *rolloutRate}, {"at-once", 0}} {
		t.Run(way.name, func(t *testing.T) {
			if !*rolloutJudge {
				t.Parallel()
			}
			playRollout(t, way.name, way.rate)
		})
	}
}

// playRollout exchanges three gateways at a drain_rate; 0 closes all at once.
func playRollout(t *testing.T, name string, rate int) {
	redis := testkit.StartRedis(t)
	n := *rolloutDevices
	r := &rollout{T: t, rate: rate, voyages: &voyages{devices: make([]voyage, n)}, front: startFront(t, 4, n+n/5+200)}
	r.args = args("--log", redis.URL(), "--drain-wait", drainWait.String(), "--retry", rolloutRetry.String(), "--drain-rate", strconv.Itoa(rate))
	for range 3 {
		r.launch()
	}
	ledger := testkit.NewLedger("rollout", n)
	ledger.Watch(r.voyages.note)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { ledger.Connect(ctx, func() string { return "http://" + r.front.Devices }, 0) })
	ledger.AwaitBegun(t)
	testkit.Eventually(t, "everybody has a stream", r.voyages.all)
	publishing, stop := context.WithCancel(ctx)
	var counting sync.WaitGroup
	running.Go(func() {
		ledger.Publish(publishing, func() string { return "http://" + r.front.Events }, *rolloutEvents)
	})
	counting.Go(func() { r.sample(publishing) })
	r.began = time.Now()
	for range 3 * *rolloutTimes {
		r.exchange()
	}
	took := time.Since(r.began)
	stop()
	counting.Wait()
	events := ledger.Settle(t)
	cancel()
	running.Wait()
	t.Logf("%d devices; %d events in %v, %.0f a second; each gateway was gone after %v", n, events, took.Round(time.Second), float64(events)/took.Seconds(), r.leaving)
	r.judge()
	if *rolloutData != "" {
		r.save(name, events, took)
	}
}

// judge holds what the devices saw against what docs/operate/drain.md promises.
func (r *rollout) judge() {
	v := r.voyages
	most := perSecond(v.back) // sorts
	r.Logf("at a drain_rate of %d: %d reconnects, at most %d in a second; the longest time without a stream %v, %v more than the device was told to wait; %d streams ended in disorder, %d tries failed",
		r.rate, len(v.back), most, v.longest.Round(time.Millisecond), v.over.Round(time.Millisecond), v.broken, v.failed)
	bound := 5 * time.Second
	if !*rolloutJudge {
		bound += 30 * time.Second // others' tests run beside this one
	}
	if v.over > bound {
		r.Errorf("a device was without a stream for %v longer than it was told", v.over)
	}
	switch limit := r.rate * 3 / 2; {
	case !*rolloutJudge:
	case r.rate > 0 && most > limit:
		r.Errorf("%d devices came back in a second; wanted at most %d", most, limit)
	case r.rate == 0 && most < 4**rolloutRate:
		r.Errorf("without turns at most %d came back in a second: that shows no difference", most)
	}
}

// save writes what tools/rollout draws.
func (r *rollout) save(name string, events int, took time.Duration) {
	reconnects := make([]int, len(r.connections))
	for _, at := range r.voyages.back {
		if i := int(at.Sub(r.began) / time.Second); i >= 0 && i < len(reconnects) {
			reconnects[i]++
		}
	}
	text, err := json.Marshal(map[string]any{
		"drain_rate": r.rate, "devices": len(r.voyages.devices), "events": events, "seconds": int(took.Seconds()),
		"most_reconnects_per_second": perSecond(r.voyages.back),
		"connections":                r.connections, "reconnects": reconnects,
	})
	if err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*rolloutData, name+".json"), append(text, '\n'), 0o644); err != nil {
		r.Fatal(err)
	}
}
