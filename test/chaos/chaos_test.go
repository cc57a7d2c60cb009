package chaos

import (
	"maps"
	"testing"
	"time"
)

// TestShort is a taste of TestLong on three topologies, with seeds that bring
// many kinds of faults in little time; -chaos.seed draws others.
func TestShort(t *testing.T) {
	if *topologyFlag != "" {
		t.Skip("TestLong was asked for")
	}
	for topology, seed := range map[string]uint64{"embedded": 2, "single": 154, "sentinel": 2} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			s := settings{topology: topology, seed: seed, length: 15 * time.Second, rate: 200, devices: 40, window: 20 * time.Second, brief: true}
			if *seedFlag != 0 {
				s.seed = *seedFlag
			}
			once(t, s)
		})
	}
}

// TestLong is what make chaos runs.
func TestLong(t *testing.T) {
	if *topologyFlag == "" {
		t.Skip("it takes minutes: make chaos")
	}
	s := settings{topology: *topologyFlag, seed: *seedFlag, length: *timeFlag, rate: *rateFlag, devices: *devicesFlag, window: 20 * time.Second}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	res := once(t, s)
	if *resultsFlag {
		res.write(t)
	}
}

// once makes one run and fails the test for whatever the product did wrong.
func once(t *testing.T, s settings) result {
	t.Helper()
	again := "make chaos TOPOLOGY=" + s.topology + " SEED=" + utoa(s.seed) + " TIME=" + s.length.String()
	t.Logf("to draw the same faults again: %s", again)
	r := newRun(t, s)
	r.live()
	<-r.stalls.ended
	res := r.result()
	t.Logf("%+v", res)
	for _, text := range r.chronicle.found() {
		t.Error(text)
	}
	if t.Failed() {
		t.Logf("to draw the same faults again: %s", again)
	}
	return res
}

// result sums the run up.
func (r *run) result() result {
	res := result{
		Topology: r.topology, Seed: r.seed, Seconds: int(r.length.Seconds()), Settings: r.loose, Build: "race",
		Devices: len(r.devices), Gateways: r.store.gateways, Kinds: maps.Clone(r.done),
		Resyncs: make(map[string]int), Stall: round(r.stalls.worst), Violations: len(r.chronicle.found()),
	}
	if *plainFlag {
		res.Build = "plain"
	}
	for _, n := range r.done {
		res.Faults += n
	}
	for _, l := range r.lanes {
		res.Acknowledged += l.counted()
	}
	for _, d := range r.devices {
		handled, anew, resyncs, worst := d.tally()
		res.Handled += handled
		res.Anew += anew
		res.Conflated += d.conflated()
		res.Wait = max(res.Wait, round(worst))
		for reason, n := range resyncs {
			res.Resyncs[string(reason)] += n
		}
	}
	if res.Acknowledged == 0 {
		r.tb.Error("nothing was acknowledged: the run proves nothing")
	}
	return res
}

func round(d time.Duration) float64 { return float64(d.Milliseconds()/100) / 10 }
