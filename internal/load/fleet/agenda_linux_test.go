package fleet

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAgenda: every move comes when its time has come, the earliest first.
func TestAgenda(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(0, 50), 0, 60).Draw(t, "times")
		now := rapid.Int64Range(0, 50).Draw(t, "now")
		var a agenda
		for device, at := range times {
			a.add(move{at: at, device: device})
		}
		var got []int64
		for _, until := range []int64{now, math.MaxInt64} {
			for {
				m, ok := a.due(until)
				if !ok {
					break
				}
				if m.at > until || times[m.device] != m.at {
					t.Fatalf("%+v at %d", m, until)
				}
				got = append(got, m.at)
			}
		}
		if want := slices.Sorted(slices.Values(times)); !slices.Equal(got, want) {
			t.Fatalf("came in the order %v, want %v", got, want)
		}
	})
}
