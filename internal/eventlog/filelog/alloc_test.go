package filelog

import (
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
	n := testing.AllocsPerRun(200, func() {
		if res := l.Append(t.Context(), batch); res[0].Err != nil {
			t.Error(res[0].Err)
		}
	})
	if n > most {
		t.Errorf("an append of one event allocates %v times, allowed are %d", n, most)
	}
	t.Logf("%v allocations", n)
}
