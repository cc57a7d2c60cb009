package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"downlink/internal/governor"
	"downlink/internal/governor/api"
	"downlink/internal/testkit"
)

// A governed gateway is what GET /v1/governor says.
type governed struct {
	*testkit.Gateway
	t *testing.T
}

func (g governed) view() (v api.View) {
	g.t.Helper()
	if status, text := testkit.Get(g.t, g.Backend+api.Path); status != 200 || json.Unmarshal([]byte(text), &v) != nil {
		g.t.Fatalf("GET %s: %d %s", api.Path, status, text)
	}
	return v
}

func (g governed) admission() governor.LeverState {
	g.t.Helper()
	return g.view().Levers[0]
}

// memory is the signal by which all of it is moved.
func (g governed) memory() governor.SignalState {
	g.t.Helper()
	for _, s := range g.view().Signals {
		if s.Name == "redis_memory" {
			return s
		}
	}
	g.t.Fatal("there is no signal redis_memory")
	return governor.SignalState{}
}

// patch changes settings while it runs.
func (g governed) patch(text string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPatch, g.Backend+api.Path, strings.NewReader(text))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		g.t.Fatalf("PATCH %s: %s", text, resp.Status)
	}
}

// knock opens a stream, and says by which signal it was refused: "" if it wasn't.
func (g governed) knock(device string) (s *testkit.Stream, signal string) {
	g.t.Helper()
	s = testkit.Open(g.t, g.Device+"/events?device="+device, "")
	why, signal := s.Header.Get("Downlink-Refused"), s.Header.Get("Downlink-Signal")
	if s.Status != 200 || (why != "") != (signal != "") {
		g.t.Errorf("%s got %d, refused %q by %q", device, s.Status, why, signal)
	}
	return s, signal
}

// maxMemory is a small wall, in megabytes.
const maxMemory = 40

func smallRedis(t *testing.T) *testkit.Redis {
	return testkit.StartRedis(t, testkit.RedisConfig(fmt.Sprintf("maxmemory %dmb", maxMemory), "maxmemory-policy noeviction"))
}

// fill leaves so many megabytes in it, at one blow: a governor that reads in between
// would see it on its way to the wall. Each is a value of its own: a large one may
// take a quarter more than its size.
func fill(r *testkit.Redis, megabytes int) {
	r.Do("EVAL", `local x = string.rep("x", 1048576 - 64)
		for i = 0, ARGV[1] - 1 do redis.call("SET", "ballast:" .. i, x) end`, "0", strconv.Itoa(megabytes))
}

// empty takes it away.
func empty(r *testkit.Redis, megabytes int) {
	for i := range megabytes {
		r.Do("DEL", fmt.Sprint("ballast:", i))
	}
}

// hasty is the law at a pace that a test can wait for; it falls once. The connected
// are the publishers, so memory moves admission as well.
const hasty = `{"step":0.1,"period":"1h","fast_period":"1s","calm":"1s","rise_step":0.1,"rise_period":"1s","hesitance":1,"signals":{"redis_memory":{"levers":["publish","admission"]}}}`

// startGoverned starts gateways, each with room for twenty streams, which it has
// sixteen of.
func startGoverned(t *testing.T, redis *testkit.Redis, n int) (fleet []governed, streams []*testkit.Stream) {
	for i := range n {
		g := governed{program.StartGateway(t, args("--log", redis.URL(), "--max-connections", "20", "--governor-reserve", "0")...), t}
		g.patch(hasty)
		for j := range 16 {
			s, refused := g.knock(fmt.Sprintf("in-%d-%d", i, j))
			if refused != "" {
				t.Fatalf("a device was refused by %s", refused)
			}
			streams = append(streams, s)
		}
		fleet = append(fleet, g)
	}
	return fleet, streams
}

// TestGovernedWithoutRedis: three gateways on one real Redis that fills act alike.
// Then Redis freezes: each goes on admitting by the ratio that it had, and says that
// it doesn't know any more. It thaws and has room again: all of them rise, and
// nobody who was connected has been put out.
func TestGovernedWithoutRedis(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	redis := smallRedis(t)
	fleet, streams := startGoverned(t, redis, 3)
	fill(redis, 32)
	const lowered = 0.8 * 0.9 // from what is in use
	for _, g := range fleet {
		testkit.Eventually(t, "admission is lowered by what fills", func() bool { return g.admission().Signal == "redis_memory" })
	}
	redis.Stop()
	for _, g := range fleet {
		testkit.Eventually(t, "it says that it doesn't know", func() bool {
			return g.Metric(`downlink_governor_signal_known{signal="redis_memory"}`) == 0
		})
		g.goesOnBlind(lowered)
	}
	for _, s := range streams[:6] {
		s.Close()
	}
	testkit.Eventually(t, "six have gone", func() bool { return fleet[0].Metric("sse_active_connections") == 10 })
	if _, by := fleet[0].knock("welcome"); by != "" {
		t.Errorf("a newcomer for whom there is a place was refused by %q", by)
	}
	redis.Cont()
	empty(redis, 32)
	for _, g := range fleet {
		testkit.Eventually(t, "admission rises again", func() bool { return g.admission().Ratio > lowered })
	}
	testkit.Eventually(t, "events go through", func() bool {
		status, _ := testkit.Post(t, fleet[0].Backend+"/v1/events", "application/json", `{"device":"in-2-0","type":"t","payload":"thawed"}`)
		return status == 200
	})
	streams[32].Until(`data: "thawed"`)
	if left := fleet[1].Metric("sse_active_connections"); left != 16 {
		t.Errorf("%v are left of 16 who were connected", left)
	}
}

// goesOnBlind: the ratio is the last one, newcomers are refused by it, and it is said
// that its signal isn't known, and since when.
func (g governed) goesOnBlind(ratio float64) {
	g.t.Helper()
	if l := g.admission(); math.Abs(l.Ratio-ratio) > 1e-9 || l.Verdict != governor.Unknown {
		g.t.Errorf("without Redis: %+v", l)
	}
	if n := g.Metric(`downlink_throttle_ratio{lever="admission"}`); math.Abs(n-ratio) > 1e-9 {
		g.t.Errorf("without Redis downlink_throttle_ratio is %v", n)
	}
	if s := g.memory(); s.Verdict != governor.Unknown || s.Error == "" || s.Age == nil || *s.Age < s.Fresh {
		g.t.Errorf("without Redis: %+v", s)
	}
	if !strings.Contains(g.Log(), `a signal of the governor can't be read; until it can be, no lever that it moves rises" part=governor signal=redis_memory`) {
		g.t.Error("its log says nothing")
	}
	if _, by := g.knock("new"); by != "redis_memory" {
		g.t.Errorf("without Redis a newcomer was refused by %q", by)
	}
}
