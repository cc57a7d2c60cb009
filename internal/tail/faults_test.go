package tail

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/eventlog"
)

// TestFaultsAreLoggedOnceAMinute, each kind for itself.
func TestFaultsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		m, log := NewMetrics(nil), slog.New(slog.NewTextHandler(&said, nil))
		batch := eventlog.Batch{Entries: []eventlog.Entry{{Fault: eventlog.FaultShard}, {Fault: eventlog.FaultShard}, {Fault: eventlog.FaultType}, {}}}
		for _, want := range []int{2, 2, 4} {
			m.dispatched(batch, log)
			if got := strings.Count(said.String(), "malformed"); got != want {
				t.Errorf("%d lines, want %d:\n%s", got, want, said.String())
			}
			if want == 2 {
				time.Sleep(faultEvery/2 + time.Nanosecond) //nolint:forbidigo // in a synctest bubble
			}
		}
	})
}
