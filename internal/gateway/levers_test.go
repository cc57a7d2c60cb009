package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/event"
	"downlink/internal/governor"
	"downlink/internal/limits"
	"downlink/internal/publish"
	"downlink/internal/testkit"
)

// pull moves a lever of a running gateway, as its governor would.
func pull(t *testing.T, g *running, name string, p governor.Position) {
	t.Helper()
	for _, l := range g.levers.all(func() int { return 0 }, new(publish.Handler)) {
		if l.Name == name {
			l.Set(p)
			return
		}
	}
	t.Fatalf("there is no lever %s", name)
}

func limitOf(t *testing.T, g *running, name string) limits.State {
	t.Helper()
	for _, s := range g.opts.Limits.States() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no limit %s", name)
	return limits.State{}
}

// While admission is lowered newcomers are refused with the signal, everywhere
// the same; a device with a cursor of the window still finds a place; and nobody
// who is connected is put out.
func TestAdmissionIsLowered(t *testing.T) {
	t.Parallel()
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	twenty := int64(20)
	set(t, g, maxConnections, &twenty)
	for i := range 10 {
		knock(t, g, fmt.Sprintf("in-%d", i), "")()
	}
	_, answer := testkit.Post(t, g.backend+"/v1/events", "application/json", `{"device":"back","type":"t","payload":1}`)
	_, rest, _ := strings.Cut(answer, `"id":"`)
	cursor, _, _ := strings.Cut(rest, `"`)
	testkit.Eventually(t, "the event has arrived", func() bool {
		return g.flow.Load().shards.Of("back").Position().String() == cursor
	})
	pull(t, g, governor.Admission, governor.Position{Ratio: 0.5, Signal: "tail_lag", Why: "tail_lag is 5000 entries, over the threshold of 1000 entries"})

	most := limitOf(t, g, maxConnections)
	if most.Configured != 20 || most.Effective != 10 || !strings.Contains(most.Why, "the governor holds it at 50.0 % of 20: tail_lag is 5000 entries") {
		t.Errorf("%+v", most)
	}
	if pace := limitOf(t, g, acceptRate); pace.Effective != 1 || !strings.Contains(pace.Why, "tail_lag") {
		t.Errorf("%+v", pace)
	}
	newcomer, stale := knock(t, g, "new", ""), knock(t, g, "stale", "Last-Event-ID: 1000-0\r\n")
	for what, resp := range map[string]*http.Response{"a newcomer": newcomer(), "an old cursor": stale()} {
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || resp.Header.Get("Downlink-Refused") != "max_connections" || resp.Header.Get("Downlink-Signal") != "tail_lag" || !strings.HasPrefix(string(body), "retry: ") {
			t.Errorf("%s: %s %v %q", what, resp.Status, resp.Header, body)
		}
	}
	if resp := knock(t, g, "back", "Last-Event-ID: "+cursor+"\r\n")(); resp.Header.Get("Downlink-Refused") != "" {
		t.Errorf("a device that comes back: %v", resp.Header)
	}
	if _, streams := g.Gateway.device.Count(); streams != 11 {
		t.Errorf("%d streams are there", streams)
	}
	if _, seen := testkit.Get(t, g.backend+"/v1/devices/new"); !strings.Contains(seen, "the governor: tail_lag is 5000 entries") {
		t.Errorf("explain says nothing of it: %s", seen)
	}
	if n := testutil.CollectAndCount(g.registry, "downlink_governor_refused_total"); n == 0 {
		t.Error("it isn't counted")
	}

	pull(t, g, governor.Admission, governor.Position{Ratio: 1})
	if most := limitOf(t, g, maxConnections); most.Effective != 20 || strings.Contains(most.Why, "governor") {
		t.Errorf("%+v", most)
	}
	if resp := knock(t, g, "new", "")(); resp.Header.Get("Downlink-Refused") != "" {
		t.Errorf("a newcomer afterwards: %v", resp.Header)
	}
}

// While publishing is lowered, publishers are told by which signal, and when to
// come back; a configured rate is lowered, and without one what there was lately.
func TestPublishingIsLowered(t *testing.T) {
	t.Parallel()
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	down := governor.Position{Ratio: 0.5, Signal: "redis_memory", Why: "redis_memory is 84 %, over the threshold of 80 %"}
	pull(t, g, governor.Publish, down)
	if rate := limitOf(t, g, publishRate); rate.Configured != 0 || rate.Effective != leastPeak/2 || !strings.Contains(rate.Why, "that there were lately: redis_memory is 84 %") {
		t.Errorf("%+v", rate)
	}
	four := int64(4)
	set(t, g, publishRate, &four)
	if rate := limitOf(t, g, publishRate); rate.Effective != 2 {
		t.Errorf("%+v", rate)
	}
	if resp := publishMany(t, g.backend, "a"); resp == nil {
		t.Error("events at once pass a rate of 2 a second")
	} else if body, _ := io.ReadAll(resp.Body); resp.Header.Get("Downlink-Signal") != "redis_memory" || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "because redis_memory is 84 %") {
		t.Errorf("%v %s", resp.Header, body)
	}
	pull(t, g, governor.Publish, governor.Position{Ratio: 1})
	if rate := limitOf(t, g, publishRate); rate.Effective != 4 || strings.Contains(rate.Why, "governor") {
		t.Errorf("%+v", rate)
	}
}

// A gateway's governor runs with it, and its signals can be read.
func TestGovernorReadsItsSignals(t *testing.T) {
	t.Parallel()
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	testkit.Eventually(t, "all signals are read", func() bool {
		st := g.flow.Load().governor.State()
		for _, s := range st.Signals {
			if s.Age == nil || s.Error != "" {
				return false
			}
		}
		return st.On && len(st.Signals) >= 7 && len(st.Levers) == 2 && st.Levers[0].Ratio == 1
	})
}

func TestWhoComesBack(t *testing.T) {
	const window = 15 * time.Minute
	head := event.ID{Ms: 10_000_000, Seq: 3}
	for _, c := range []struct {
		cursor event.ID
		want   bool
	}{
		{head, true},
		{event.ID{Ms: head.Ms - 60_000}, true},
		{event.ID{Ms: head.Ms - 900_000}, true},
		{event.ID{Ms: head.Ms - 900_001}, false},
		{event.ID{Ms: head.Ms + 10_000}, true},
		{event.ID{Ms: head.Ms + 10_001}, false},
		{event.ID{}, false},
	} {
		if got := within(c.cursor, head, window); got != c.want {
			t.Errorf("%v: %v", c.cursor, got)
		}
	}
	if within(head, event.ID{}, window) {
		t.Error("a shard without a position knows no cursor")
	}
}
