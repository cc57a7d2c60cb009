package gateway

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/drain"
	"downlink/internal/governor"
	"downlink/internal/testkit"
)

var retryFrame = regexp.MustCompile(`(?m)^retry: ([0-9]+)$`)

// press has a running gateway's governor find that a signal is over its threshold,
// and then that it isn't any more.
func press(t *testing.T, g *running, over bool) {
	t.Helper()
	if _, err := g.flow.Load().governor.Apply(func(s *governor.Settings) error {
		// One fall, also while other tests of this process give descriptors back.
		s.Step, s.FastStep, s.Period, s.Recover = 0.5, 0.5, governor.Duration(time.Hour), 0
		s.Signals["descriptors"] = governor.SignalSettings{Threshold: 1e-6, Levers: []string{governor.Admission}}
		if !over {
			s.Signals["descriptors"] = governor.SignalSettings{}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A real signal is over its threshold: streams above what is allowed then are ended,
// with a reason that everybody sees and a time at which there may be a place; and
// nobody is any more once it is over.
func TestStreamsAreShed(t *testing.T) {
	t.Parallel()
	o := testOptions(t, "file:"+t.TempDir())
	o.ShedAfter = time.Millisecond
	g := run(t, o)
	const devices = 16
	for name, value := range map[string]int64{maxConnections: devices, governorReserve: 50, shedRate: 100} {
		set(t, g, name, &value)
	}
	var streams []*testkit.Stream
	for i := range devices {
		streams = append(streams, testkit.Open(t, g.device+"/events?device="+fmt.Sprintf("shed-%d", i), ""))
	}
	press(t, g, true)
	// The first fall is to half of what is allowed, and half of that is the reserve.
	const left = devices/2 + devices/4
	testkit.Eventually(t, "streams are let go", func() bool { return g.out.roster.Living() <= left })
	testkit.Eventually(t, "there is no surplus any more", func() bool { return testutil.ToFloat64(g.metrics.drain.Surplus) == 0 })
	if n := g.out.roster.Living(); n != left {
		t.Errorf("%d are left, of whom %d are allowed", n, left)
	}
	press(t, g, false)
	none := int64(0)
	set(t, g, governorReserve, &none) // now a quarter is too much, and no signal over its threshold
	if n, why := g.flow.Load().surplus(); n != 0 {
		t.Errorf("%d are to go although no signal is over its threshold: %s", n, why)
	}
	testkit.Eventually(t, "they have gone", func() bool { return g.out.roster.Len() == left })
	shed := func(i int) (seen string, yes bool) {
		_, seen = testkit.Get(t, fmt.Sprintf("%s/v1/devices/shed-%d", g.backend, i))
		return seen, strings.Contains(seen, `"shed"`)
	}
	testkit.Eventually(t, "it is remembered why", func() bool {
		n := 0
		for i := range devices {
			if _, yes := shed(i); yes {
				n++
			}
		}
		return n == devices-left
	})

	gone := 0
	for i, s := range streams {
		name := fmt.Sprintf("shed-%d", i)
		if seen, yes := shed(i); !yes {
			continue // it stays
		} else if !strings.Contains(seen, "the governor: descriptors is ") {
			t.Errorf("explain doesn't say why: %s", seen)
		}
		gone++
		body := s.Rest()
		told := retryFrame.FindAllStringSubmatch(body, -1)
		if len(told) == 0 {
			t.Fatalf("%s was told nothing: %q", name, body)
		}
		if ms, _ := strconv.Atoi(told[len(told)-1][1]); ms < 60_000 || ms > 300_000 {
			t.Errorf("%s is to come back in %d ms, and there is no place before a minute", name, ms)
		}
	}
	if gone != devices-left {
		t.Errorf("%d were let go, of %d; %d are left", gone, devices, left)
	}
	if n := g.out.roster.Living(); n != left {
		t.Errorf("%d more were let go although the signal isn't over its threshold", left-n)
	}
	if g.flow.Load().leaving() {
		t.Error("streams are said to be let go for another reason")
	}
	if g.out.drain.Begin(drain.ByAPI); !g.flow.Load().leaving() {
		t.Error("streams would be let go twice: by a drain, and for the governor's sake")
	}
	g.out.drain.Abort()
}
