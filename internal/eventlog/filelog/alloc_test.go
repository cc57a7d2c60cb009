package filelog

import (
	"math"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// An append's allocations, the store's included. More is not wrong, but ought
// to be meant.
func TestAppendAllocations(t *testing.T) {
	l := open(t, testOptions(t))
	batch := []eventlog.Append{{Events: []event.Event{{Target: "a", Type: "t", Payload: "p"}}}}
	const most = 9
	n := math.Inf(1)
	for range 5 { // the fewest: the store works in the background, and a race detector has pools forget
		n = min(n, testing.AllocsPerRun(100, func() {
			if res := l.Append(t.Context(), batch); res[0].Err != nil {
				t.Error(res[0].Err)
			}
		}))
	}
	if n > most {
		t.Errorf("an append of one event allocates %v times, allowed are %d", n, most)
	}
	t.Logf("%v allocations", n)
}
