package ledger

import (
	"testing"

	"pgregory.net/rapid"
)

func all(int) bool { return true }

// TestAgainstSets: for any order of receipts the ledger says what sets of
// numbers say.
func TestAgainstSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const devices, publishers = 3, 2
		l := New(devices, publishers, all)
		type event struct {
			lane int32
			seq  uint32
		}
		var published []event
		received := map[int]map[event]bool{0: {}, 1: {}, 2: {}}
		highest := map[int]map[int32]uint32{0: {}, 1: {}, 2: {}}
		excused := map[event]bool{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			lane := int32(rapid.IntRange(-publishers, devices-1).Draw(t, "lane"))
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				published = append(published, event{lane, l.Publish(lane)})
			case 2:
				if len(published) > 0 {
					e := rapid.SampledFrom(published).Draw(t, "excused")
					excused[e] = true
					l.Excuse(e.lane, e.seq)
				}
			default:
				if len(published) == 0 {
					continue
				}
				e := rapid.SampledFrom(published).Draw(t, "received")
				device := rapid.IntRange(0, devices-1).Draw(t, "device")
				want := InOrder
				switch {
				case e.lane >= 0 && int(e.lane) != device:
					want = Foreign
				case received[device][e]:
					want = Repeated
				case e.seq < highest[device][e.lane]:
					want = Disordered
				}
				if got := l.Receive(device, e.lane, e.seq); got != want {
					t.Fatalf("device %d, event %v: %d, want %d", device, e, got, want)
				}
				if want != Foreign {
					received[device][e] = true
					highest[device][e.lane] = max(highest[device][e.lane], e.seq+1)
				}
			}
		}
		var lost uint64
		for device := range devices {
			for _, e := range published {
				if (e.lane < 0 || int(e.lane) == device) && !received[device][e] && !excused[e] {
					lost++
				}
			}
		}
		got, named := l.Lost()
		if got != lost || len(named) != int(min(lost, maxNamed)) {
			t.Fatalf("%d lost, %d of them named; want %d", got, len(named), lost)
		}
	})
}

func TestForeign(t *testing.T) {
	l := New(2, 1, all)
	l.Publish(0)
	l.Publish(-1)
	for _, c := range []struct {
		device int
		lane   int32
		seq    uint32
		want   Verdict
	}{
		{0, 0, 0, InOrder},
		{0, 0, 1, Foreign}, // never published
		{1, 0, 0, Foreign}, // of another device
		{1, -1, 0, InOrder},
		{1, -1, 1, Foreign},
		{1, -2, 0, Foreign}, // no such publisher
		{1, 1 << 30, 0, Foreign},
		{1, -1 << 31, 0, Foreign},
	} {
		if got := l.Receive(c.device, c.lane, c.seq); got != c.want {
			t.Errorf("device %d, event %d:%d: %d, want %d", c.device, c.lane, c.seq, got, c.want)
		}
	}
}

func TestNothingIsExpectedOfTheDishonest(t *testing.T) {
	l := New(2, 1, func(device int) bool { return device == 0 })
	l.Publish(0)
	l.Publish(1)
	l.Publish(-1)
	lost, first := l.Lost()
	if lost != 2 || first[0].String() != "device 0: event 0" || first[1].String() != "device 0: event b0:0" {
		t.Errorf("%d lost: %v", lost, first)
	}
}

func TestReceivingInOrderAllocatesNothing(t *testing.T) {
	l := New(1, 0, all)
	seq := uint32(0)
	allocs := testing.AllocsPerRun(1000, func() {
		l.Publish(0)
		l.Receive(0, 0, seq)
		seq++
	})
	if allocs > 0 {
		t.Errorf("%.2f allocations", allocs)
	}
}
