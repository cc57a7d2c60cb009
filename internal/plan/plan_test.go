package plan_test

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"downlink/internal/plan"
	"downlink/internal/ring"
)

func change() plan.Change {
	return plan.Change{Members: 20, Add: 1, Devices: 50_000, Shards: 64, TTL: 15 * time.Second, DialsPerSecond: 100, Dial: time.Second}
}

// A simulation really gives each device an owner, before and after, and counts.
type simulation struct {
	moved   int
	arrived map[string]int // by member
}

func simulate(devices int, before, after func(crc uint32) string) simulation {
	s := simulation{arrived: make(map[string]int)}
	for i := range devices {
		crc := crc32.ChecksumIEEE(fmt.Appendf(nil, "device-%d", i))
		if to := after(crc); to != before(crc) {
			s.moved++
			s.arrived[to]++
		}
	}
	return s
}

func (s simulation) largest() int {
	n := 0
	for _, arrived := range s.arrived {
		n = max(n, arrived)
	}
	return n
}

// A fleet shares out 64 shards as its members come and go.
type fleet struct {
	names  []string
	shards []ring.Shard
	takes  uint64
}

func (f *fleet) resize(members int) {
	f.names = f.names[:0]
	for i := range members {
		f.names = append(f.names, fmt.Sprintf("dial-%d", i))
	}
	for i, owner := range ring.Owners(f.names, f.shards) {
		if f.shards[i].Owner != owner {
			f.takes++
			f.shards[i] = f.shards[i].Taken(owner, f.takes)
		}
	}
}

func (f *fleet) holders() []string {
	owners := make([]string, len(f.shards))
	for i, s := range f.shards {
		owners[i] = s.Owner
	}
	return owners
}

func (f *fleet) owner() func(crc uint32) string { return ownerIn(f.holders()) }

func ownerIn(shards []string) func(crc uint32) string {
	return func(crc uint32) string { return shards[crc%uint32(len(shards))] }
}

func hashed(members uint32) func(uint32) string {
	return func(crc uint32) string { return fmt.Sprint(crc % members) }
}

// TestEqualsASimulation of 50,000 devices that get owners one by one.
func TestEqualsASimulation(t *testing.T) {
	for _, c := range []struct{ members, after int }{{20, 21}, {21, 20}, {3, 4}, {4, 3}, {3, 2}, {5, 9}, {40, 41}, {1, 2}} {
		t.Run(fmt.Sprintf("%d to %d", c.members, c.after), func(t *testing.T) {
			ask := change()
			if c.members != 20 {
				ask.Devices = 5000 // the race detector takes its time
			}
			ask.Members, ask.Add, ask.Remove = c.members, max(0, c.after-c.members), max(0, c.members-c.after)
			p, err := plan.Ring(ask)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "hash", p.Hash, simulate(ask.Devices, hashed(uint32(c.members)), hashed(uint32(c.after))))

			byShard := func(members uint32) func(uint32) string {
				return func(crc uint32) string { return fmt.Sprint(crc % 64 % members) }
			}
			compare(t, "static", p.Static, simulate(ask.Devices, byShard(uint32(c.members)), byShard(uint32(c.after))))

			f := &fleet{shards: make([]ring.Shard, 64)}
			for n := range c.members {
				f.resize(n + 1)
			}
			before := f.owner()
			whole := fleet{shards: append([]ring.Shard{}, f.shards...)}
			f.resize(c.after)
			compare(t, "ring", p.Ring, simulate(ask.Devices, before, f.owner()))
			if c.members > 1 {
				whole.resize(c.members - 1)
				compare(t, "crash", *p.Crash, simulate(ask.Devices, before, whole.owner()))
			}
		})
	}
}

func compare(t *testing.T, what string, got plan.Cost, want simulation) {
	t.Helper()
	if got.Moved != want.moved || got.Wave != want.largest() || got.Diallers != len(want.arrived) {
		t.Errorf("%s: the plan says %+v; really %d moved, to %d members, at most %d to one", what, got, want.moved, len(want.arrived), want.largest())
	}
}

// TestTheRingMovesItsShareAndHashNearlyAll is the figure that the choice of a
// ring rests on.
func TestTheRingMovesItsShareAndHashNearlyAll(t *testing.T) {
	p, err := plan.Ring(change())
	if err != nil {
		t.Fatal(err)
	}
	if p.Ideal != 50_000/21 || p.Ring.Shards != 3 {
		t.Errorf("%d devices and %d shards: want %d and 64/21", p.Ideal, p.Ring.Shards, 50_000/21)
	}
	if off := float64(p.Ring.Moved)/float64(p.Ideal) - 1; off < -0.1 || off > 0.1 {
		t.Errorf("the ring moves %d devices, %.0f %% off the ideal %d", p.Ring.Moved, off*100, p.Ideal)
	}
	if p.Hash.Moved < 47_000 || p.Hash.Diallers != 21 {
		t.Errorf("hash %% members moves %d devices to %d members", p.Hash.Moved, p.Hash.Diallers)
	}
}

func TestTimesAndRenewals(t *testing.T) {
	p, err := plan.Ring(change())
	if err != nil {
		t.Fatal(err)
	}
	near := func(name string, got, want float64) {
		t.Helper()
		if got < want-0.001 || got > want+0.001 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	wave := float64(p.Ring.Wave) / 100
	near("the ring's wave", p.Ring.WaveS, wave)
	near("without a connection, in order", p.Ring.Without, 2+1+wave)
	near("without a connection, after a crash", p.Crash.Without, 15+5+1+p.Crash.WaveS)
	near("without a connection, hash", p.Hash.Without, 1+p.Hash.WaveS)
	near("renewals by shard", p.PerShard.Renewals, 12.8)
	near("renewals by device", p.PerDevice.Renewals, 10_000)
}

func TestASingleMemberHasNobodyToTakeOver(t *testing.T) {
	ask := change()
	ask.Members = 1
	p, err := plan.Ring(ask)
	if err != nil || p.Crash != nil {
		t.Errorf("%+v %v", p.Crash, err)
	}
}

func TestWrongChanges(t *testing.T) {
	for _, c := range []struct {
		spoil func(*plan.Change)
		want  string
	}{
		{func(c *plan.Change) { c.Members = 0 }, "members is 0"},
		{func(c *plan.Change) { c.Members = 1001 }, "members is 1001"},
		{func(c *plan.Change) { c.Add = 0 }, "say how the fleet changes"},
		{func(c *plan.Change) { c.Add, c.Remove = 1, 1 }, "not both"},
		{func(c *plan.Change) { c.Add = -1 }, "say how the fleet changes"},
		{func(c *plan.Change) { c.Add = 5000 }, "add is 5000"},
		{func(c *plan.Change) { c.Add, c.Remove = 0, 20 }, "at least one must stay"},
		{func(c *plan.Change) { c.Devices = 0 }, "devices is 0"},
		{func(c *plan.Change) { c.Devices = 1 << 30 }, "devices is 1073741824"},
		{func(c *plan.Change) { c.Shards = 0 }, "shards is 0"},
		{func(c *plan.Change) { c.TTL = 0 }, "ttl is 0s"},
		{func(c *plan.Change) { c.DialsPerSecond = 0 }, "dials-per-second is 0"},
		{func(c *plan.Change) { c.Dial = -time.Second }, "dial is -1s"},
	} {
		ask := change()
		c.spoil(&ask)
		if _, err := plan.Ring(ask); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", ask, err, c.want)
		}
	}
}
