package governor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

// Worlds are drawn as rapid's flags say (make test and make law have some). Without
// them, as beside all other tests under the race detector, which has nothing to find in
// a law and makes it ten times as slow, they are a few, and the same ones each time.
func TestMain(m *testing.M) {
	flag.Parse()
	drawn := false
	flag.Visit(func(f *flag.Flag) { drawn = drawn || strings.HasPrefix(f.Name, "rapid.") })
	if !drawn {
		if err := errors.Join(flag.Set("rapid.seed", "1"), flag.Set("rapid.checks", "20")); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// A gauge is a probe that says what a test tells it to.
type gauge struct {
	name string

	mu    sync.Mutex
	r     Reading
	err   error
	slow  time.Duration
	asked int
}

func (g *gauge) Name() string { return g.name }

func (g *gauge) Read(ctx context.Context) (Reading, error) {
	g.mu.Lock()
	r, err, slow := g.r, g.err, g.slow
	g.asked++
	g.mu.Unlock()
	select {
	case <-ctx.Done():
		return Reading{}, ctx.Err()
	case <-time.After(slow):
	}
	return r, err
}

func (g *gauge) say(r Reading, err error, slow time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.r, g.err, g.slow = r, err, slow
}

// A rig is a governor with two signals, of which each moves the lever, in a
// synctest bubble.
type rig struct {
	*Governor
	memory, lag *gauge
	log         bytes.Buffer
	reg         *prometheus.Registry

	mu   sync.Mutex
	last []Position
	use  float64
}

func (r *rig) used() (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.use, true
}

func (r *rig) set(p Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = append(r.last, p)
}

func run(t *testing.T) *rig {
	t.Helper()
	r := &rig{memory: &gauge{name: "redis_memory"}, lag: &gauge{name: "tail_lag"}, reg: prometheus.NewRegistry(), use: 1}
	signals := []Signal{
		{Probe: r.memory, Unit: "ratio", Help: "h", Period: 5 * time.Second, Timeout: 2 * time.Second, Fresh: 20 * time.Second, Threshold: 0.8, Wall: 0.92, Levers: []string{Publish}},
		{Probe: r.lag, Unit: "entries", Help: "h", Period: 2 * time.Second, Timeout: time.Second, Fresh: 10 * time.Second, Threshold: 1000, Levers: []string{Publish}},
	}
	g, err := New(Options{
		Signals: signals, Settings: Defaults(signals), Metrics: NewMetrics(r.reg),
		Levers: []Lever{{Name: Publish, Unit: "entries/s", Use: r.used, Set: r.set}},
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Governor = g
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

func (r *rig) lever() LeverState { return r.State().Levers[0] }

func (r *rig) signal(name string) SignalState {
	for _, s := range r.State().Signals {
		if s.Name == name {
			return s
		}
	}
	return SignalState{}
}

// Over the threshold a lever falls by 10 % every 30 s; a signal that can't be
// read, or slowly, or that isn't answered by all, keeps it where it is, and says
// so; when it is good again, the lever rises, more slowly than it fell.
func TestFallHoldAndRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		pass(time.Minute)
		if s := r.lever(); s.Ratio != 1 || s.Verdict != Good {
			t.Fatalf("%+v", s)
		}
		r.memory.say(Reading{Value: 0.85, Of: "redis-1", Detail: "850 MiB of 1000 MiB"}, nil, 0)
		pass(time.Minute)
		fallen := r.lever()
		if fallen.Ratio != 0.81 || fallen.Signal != "redis_memory" || !strings.Contains(fallen.Why, "redis_memory of redis-1 is 85 %, over the threshold of 80 % (850 MiB of 1000 MiB)") {
			t.Fatalf("%+v", fallen)
		}
		r.memory.say(Reading{}, errors.New("connection refused"), 0)
		pass(time.Minute)
		at := r.lever().Ratio // while what was read last is fresh, it counts
		for what, c := range map[string]struct {
			r    Reading
			err  error
			slow time.Duration
			says string
		}{
			"failing": {err: errors.New("connection refused"), says: "connection refused"},
			"slow":    {r: Reading{Value: 0.1}, slow: time.Hour, says: "in time"},
			"partial": {r: Reading{Value: 0.1, Partial: "redis-2 is away"}},
			"lying":   {r: Reading{Value: -1}, says: "can't be"},
		} {
			r.memory.say(c.r, c.err, c.slow)
			pass(10 * time.Minute)
			s := r.signal("redis_memory")
			if got := r.lever(); got.Ratio != at || got.Verdict != Unknown || got.Worst != "redis_memory" || s.Verdict != Unknown || !strings.Contains(s.Error, c.says) {
				t.Errorf("%s: %+v %+v", what, got, s)
			}
		}
		r.memory.say(Reading{Value: 0.1}, nil, 0)
		pass(2 * time.Minute)
		if got := r.lever(); got.Ratio <= at || got.Ratio > at+0.09 || got.Signal != "redis_memory" {
			t.Errorf("after two good minutes: %+v", got)
		}
		r.memory.say(Reading{None: "maxmemory isn't set"}, nil, 0)
		pass(time.Hour)
		if got := r.lever(); got.Ratio != 1 || got.Signal != "" || got.Why != "" {
			t.Errorf("%+v", got)
		}
		if s := r.signal("redis_memory"); s.Verdict != None || s.None == "" || s.Value != nil {
			t.Errorf("%+v", s)
		}
		for _, want := range []string{`signal=redis_memory error="connection refused"`, "can be read again", "change=fall", "change=rise"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log has no %s:\n%s", want, r.log.String())
			}
		}
	})
}

// At a start the tail hasn't looked at the log yet: that is nothing to warn of. What
// goes on to fail is.
func TestABeginningIsNoFailure(t *testing.T) {
	var log bytes.Buffer
	signals := []Signal{{Probe: &gauge{name: "tail_lag"}, Unit: "entries", Help: "h", Period: 2 * time.Second, Timeout: time.Second, Fresh: 10 * time.Second, Threshold: 1000}}
	g, err := New(Options{
		Signals: signals, Settings: Defaults(signals), Metrics: NewMetrics(prometheus.NewRegistry()),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		err  error
		want string
	}{
		{errors.New("it hasn't begun"), ""}, {nil, ""},
		{errors.New("gone"), "can't be read;"}, {errors.New("gone"), ""}, {nil, "can be read again"}, {nil, ""},
	} {
		log.Reset()
		g.note(0, time.Now(), Reading{}, c.err)
		if got := log.String(); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("reading %d, with the error %v: %q, want %q", i, c.err, got, c.want)
		}
	}
}

// What only some have answered is said as well, unless it was for a moment.
func TestAHalfAnswerIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		half := Reading{Value: 0.1, Partial: "redis-2 is frozen"}
		pass(time.Minute)
		r.memory.say(half, nil, 0)
		pass(5 * time.Second)
		r.memory.say(Reading{Value: 0.1}, nil, 0)
		if pass(time.Minute); strings.Contains(r.log.String(), "redis-2") {
			t.Errorf("one reading is told of: %s", r.log.String())
		}
		r.memory.say(half, nil, 0)
		pass(time.Minute)
		if known := testutil.ToFloat64(r.opts.Metrics.known.WithLabelValues("redis_memory")); known != 0 {
			t.Errorf("downlink_governor_signal_known is %v", known)
		}
		r.memory.say(Reading{Value: 0.1}, nil, 0)
		pass(time.Minute)
		if text := r.log.String(); strings.Count(text, "not all have answered: redis-2 is frozen") != 1 || strings.Count(text, "can be read again") != 1 {
			t.Error(text)
		}
	})
}

// A governor whose Redis is frozen goes on with the last ratio; another signal
// still makes it fall.
func TestFrozenSignalsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.memory.say(Reading{Value: 0.85}, nil, 0)
		pass(30 * time.Second)
		r.memory.say(Reading{}, nil, time.Hour)
		pass(time.Minute)
		at := r.lever().Ratio
		pass(time.Hour)
		if got := r.lever().Ratio; got != at || at > 0.9 {
			t.Errorf("it went from %v to %v", at, got)
		}
		r.mu.Lock()
		r.use = 0.5 // else what is in use has to come down first
		r.mu.Unlock()
		r.lag.say(Reading{Value: 5000}, nil, 0)
		pass(time.Minute)
		if got := r.lever(); got.Ratio >= at || got.Signal != "tail_lag" {
			t.Errorf("%+v", got)
		}
	})
}

// Whoever follows the changes misses none that is remembered, and sees that some
// are gone.
func TestChangesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		none, more := r.Changes(0)
		if len(none) != 0 {
			t.Fatal(none)
		}
		r.memory.say(Reading{Value: 0.85}, nil, 0)
		<-more
		first, _ := r.Changes(0)
		if len(first) != 1 || first[0].Number != 1 || first[0].Kind != Fall || first[0].Before != 1 || first[0].After != 0.9 || first[0].Why == "" {
			t.Errorf("%+v", first)
		}
		for range remembered * 2 {
			r.Governor.mu.Lock()
			r.history.add(Change{Lever: Publish})
			r.Governor.mu.Unlock()
		}
		all, _ := r.Changes(0)
		if len(all) != remembered || all[0].Number == 1 || all[len(all)-1].Number != all[0].Number+remembered-1 {
			t.Errorf("%d, from %d on", len(all), all[0].Number)
		}
		if rest, _ := r.Changes(all[len(all)-1].Number); len(rest) != 0 {
			t.Errorf("%+v", rest)
		}
	})
}

func TestMetricsShowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.memory.say(Reading{Value: 0.85}, nil, 0)
		r.lag.say(Reading{}, errAway, 0)
		pass(20 * time.Second)
		r.opts.Metrics.Refused(Publish, "redis_memory")
		err := testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP downlink_governor_floor Ratio below which a lever doesn't fall.
# TYPE downlink_governor_floor gauge
downlink_governor_floor{lever="publish"} 0.1
# HELP downlink_governor_on 1 while the governor moves levers; 0 while it is switched off: its signals are read, and nothing is held back.
# TYPE downlink_governor_on gauge
downlink_governor_on 1
# HELP downlink_throttle_ratio Part of what is configured that the governor lets through, by lever: 1 holds nobody back.
# TYPE downlink_throttle_ratio gauge
downlink_throttle_ratio{lever="publish"} 0.9
# HELP downlink_governor_limiting 1 for the signal by which a lever is below 1, else 0.
# TYPE downlink_governor_limiting gauge
downlink_governor_limiting{lever="publish",signal="redis_memory"} 1
downlink_governor_limiting{lever="publish",signal="tail_lag"} 0
# HELP downlink_governor_signal_known 1 while what was read of a signal counts; 0 while no lever that it moves rises, because it can't be read.
# TYPE downlink_governor_signal_known gauge
downlink_governor_signal_known{signal="redis_memory"} 1
downlink_governor_signal_known{signal="tail_lag"} 0
# HELP downlink_governor_threshold From which value of a signal on the levers that it moves fall; 0: it moves none.
# TYPE downlink_governor_threshold gauge
downlink_governor_threshold{signal="redis_memory"} 0.8
downlink_governor_threshold{signal="tail_lag"} 1000
# HELP downlink_governor_refused_total Streams and events that were refused while a lever was below 1, by the signal that has brought it there; they are counted in downlink_refused_total and downlink_publish_events_total too.
# TYPE downlink_governor_refused_total counter
downlink_governor_refused_total{lever="publish",signal="redis_memory"} 1
downlink_governor_refused_total{lever="publish",signal="tail_lag"} 0
`), "downlink_throttle_ratio", "downlink_governor_on", "downlink_governor_floor", "downlink_governor_limiting", "downlink_governor_signal_known", "downlink_governor_threshold", "downlink_governor_refused_total")
		if err != nil {
			t.Error(err)
		}
	})
}

// A lever that is at its floor while its signal is over is what somebody has to know.
func TestStuckAtTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.mu.Lock()
		r.use = 0.05
		r.mu.Unlock()
		r.memory.say(Reading{Value: 0.99}, nil, 0)
		pass(10 * time.Minute)
		if n := strings.Count(r.log.String(), "at its floor, and that isn't enough"); r.lever().Ratio != 0.1 || n != 1 {
			t.Errorf("at %v, it was said %d times", r.lever().Ratio, n)
		}
		r.memory.say(Reading{Value: 0.1}, nil, 0)
		pass(time.Minute)
		if n := strings.Count(r.log.String(), "is enough now"); n != 1 {
			t.Errorf("it was said %d times", n)
		}
	})
}
