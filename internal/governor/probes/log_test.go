package probes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/tail"
	"downlink/internal/testkit"
)

func openLog(t *testing.T, opts redislog.Options) *redislog.Log {
	t.Helper()
	l, err := redislog.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// batch is n events for a device, in its shard.
func batch(shards, n int) []eventlog.Append {
	a := eventlog.Append{Shard: event.Shard("device", shards)}
	for range n {
		a.Events = append(a.Events, event.Event{Target: "device", Type: "t", Payload: "x"})
	}
	return []eventlog.Append{a}
}

// nobody takes what the tail dispatches.
type nobody struct{}

func (nobody) Start(int, event.ID)               {}
func (nobody) Dispatch(int, []eventlog.Entry)    {}
func (nobody) Reset(int, event.ID, event.Reason) {}
func (nobody) Overtaken(context.Context, int) (event.ID, error) {
	return event.ID{}, eventlog.ErrUnavailable
}

// TestTailBehind: the connection that the tail reads over is held up while
// others publish; then it is let go.
func TestTailBehind(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, redis.Addr())
	source := openLog(t, redisOptions(t, "redis://"+proxy.Addr()))
	others := openLog(t, redisOptions(t, redis.URL()))
	const watch = 2 * time.Second // after three of them the watchdog would begin the read anew
	reading := tail.New(source, nobody{}, tail.Options{Window: time.Hour, Watch: watch, Metrics: tail.NewMetrics(nil), Logger: slog.New(slog.DiscardHandler)})
	lag, delay := TailLag(reading, 10*time.Second), TailDelay(reading, 10*time.Second)
	wantError(t, lag, "hasn't begun")
	wantError(t, delay, "hasn't begun")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reading.Run(ctx) }()
	defer func() {
		proxy.Resume()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	testkit.Eventually(t, "the tail has begun", reading.Ready)
	others.Append(t.Context(), batch(4, 10))
	testkit.Eventually(t, "the tail waits", func() bool { return proxy.StallThose("XREAD") > 0 })
	for range 3 {
		if err := others.Append(t.Context(), batch(4, 500))[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "1,500 entries are under way, or for so long that they wait", func() bool {
		l, err := read(lag)
		return err == nil && (l.Value == 0 && strings.HasPrefix(l.Detail, "15") || l.Value >= 1500)
	})
	testkit.Eventually(t, "they are seen to wait, and for some time", func() bool {
		l, errLag := read(lag)
		d, errDelay := read(delay)
		return errLag == nil && errDelay == nil && l.Value >= 1500 && l.Value <= 1510 && d.Value >= 1
	})
	want := fmt.Sprint("shard ", event.Shard("device", 4))
	if d, err := read(delay); err != nil || d.Of != want || d.Partial != "" {
		t.Errorf("%+v, %v; want the delay of %s", d, err, want)
	}
	proxy.Resume()
	testkit.Eventually(t, "nothing waits any more", func() bool {
		l, errLag := read(lag)
		d, errDelay := read(delay)
		return errLag == nil && errDelay == nil && l.Value == 0 && d.Value == 0
	})
	stale := TailLag(reading, time.Millisecond)
	redis.Stop()
	testkit.Eventually(t, "that nobody can look is noticed", func() bool { _, err := read(stale); return err != nil })
	redis.Cont()
}

type lags []tail.Lag

func (l lags) Lags() []tail.Lag { return l }

// TestTailOfSeveralGroups: sums, the worst, and who isn't known.
func TestTailOfSeveralGroups(t *testing.T) {
	now := time.Now()
	good := tail.Lag{Group: 0, Entries: 5, Delay: time.Second, Shard: 3, Looked: now}
	worse := tail.Lag{Group: 1, Entries: 7, Delay: 2 * time.Second, Shard: 4, Looked: now}
	old := tail.Lag{Group: 2, Entries: 900, Delay: time.Hour, Shard: 5, Looked: now.Add(-time.Minute)}
	within(t, TailLag(lags{good, worse}, 2*time.Second), 12, 12)
	if d := within(t, TailDelay(lags{good, worse}, 2*time.Second), 2, 2); d.Of != "shard 4" {
		t.Errorf("%+v", d)
	}
	if l := within(t, TailLag(lags{good, old}, 2*time.Second), 5, 5); !strings.Contains(l.Partial, "group 2 was compared with the log 1m0s ago") {
		t.Errorf("%+v", l)
	}
	if d := within(t, TailDelay(lags{good, old}, 2*time.Second), 1, 1); d.Partial == "" {
		t.Errorf("%+v", d)
	}
	good.Least = true
	if l := within(t, TailLag(lags{good}, 2*time.Second), 5, 5); !strings.Contains(l.Partial, "after a reset") {
		t.Errorf("%+v", l)
	}
	quick := tail.Lag{Group: 3, Entries: 5000, Delay: 50 * time.Millisecond, Looked: now}
	if l := within(t, TailLag(lags{worse, quick}, 2*time.Second), 7, 7); l.Detail != "5000 more are on their way, for less than 1s" || l.Partial != "" {
		t.Errorf("%+v", l)
	}
	wantError(t, TailLag(lags{old}, 2*time.Second), "1m0s ago")
	wantError(t, TailDelay(lags{}, 2*time.Second), "hasn't been reached")
}

// TestAppends: a real server that is quick, slow, silent and gone.
func TestAppends(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, redis.Addr())
	timed := TimeAppends(openLog(t, redisOptions(t, "redis://"+proxy.Addr())))
	s := AppendLatency(timed)
	within(t, s, 0, 0) // nobody publishes
	appendOne := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return timed.Append(ctx, batch(4, 1))[0].Err
	}
	for range 5 {
		if err := appendOne(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if got := within(t, s, 0.0001, 10); !strings.HasPrefix(got.Detail, "5 appends") {
		t.Errorf("%+v", got)
	}
	within(t, s, 0, 0)
	proxy.Slow(80*time.Millisecond, 0)
	if err := appendOne(time.Minute); err != nil {
		t.Fatal(err)
	}
	within(t, s, 0.15, 30)
	proxy.Slow(0, 0)
	proxy.Stall()
	answered := make(chan error, 1)
	go func() { answered <- appendOne(time.Minute) }()
	testkit.Eventually(t, "what is under way counts before it is answered", func() bool {
		got, err := read(s)
		return err == nil && got.Value > 0.3 && strings.HasSuffix(got.Detail, "1 are under way")
	})
	proxy.Resume()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	_, _ = read(s)
	redis.Kill9()
	testkit.Eventually(t, "a server that is gone is not quick", func() bool {
		if err := appendOne(time.Second); err == nil {
			return false
		}
		_, err := read(s)
		return err != nil && strings.Contains(err.Error(), "stored nothing")
	})
}

// answers is a log that answers as it is told.
type answers struct{ err error }

func (a answers) Append(_ context.Context, batch []eventlog.Append) []eventlog.Result {
	results := eventlog.NewResults(batch)
	for i := range results {
		results[i].Err = a.err
	}
	return results
}

// TestRefusalsAreAnswers: a full log has answered, and so has one that knows the
// key; one that is away hasn't, however quickly that was known.
func TestRefusalsAreAnswers(t *testing.T) {
	for _, c := range []struct {
		err     error
		answers bool
	}{
		{nil, true}, {eventlog.ErrFull, true}, {eventlog.ErrConflict, true}, {eventlog.ErrExhausted, true},
		{eventlog.ErrUnavailable, false}, {eventlog.ErrNotReplicated, false}, {fmt.Errorf("dialling: %w", eventlog.ErrUnavailable), false},
	} {
		a := TimeAppends(answers{c.err})
		got := a.Append(t.Context(), batch(4, 2))
		if len(got) != 1 || !errors.Is(got[0].Err, c.err) {
			t.Errorf("%v: the results aren't passed on: %+v", c.err, got)
		}
		if _, err := a.read(time.Now()); (err == nil) != c.answers {
			t.Errorf("%v: reading says %v", c.err, err)
		}
	}
	mixed := TimeAppends(answers{})
	mixed.Append(t.Context(), batch(4, 1))
	mixed.log = answers{eventlog.ErrUnavailable}
	mixed.Append(t.Context(), batch(4, 1))
	if r, err := mixed.read(time.Now()); err != nil || r.Partial == "" {
		t.Errorf("one of two failed: %+v, %v", r, err)
	}
}

func TestNearlyAll(t *testing.T) {
	var took [len(bounds) + 1]int
	if d, n := nearlyAll(took); d != 0 || n != 0 {
		t.Errorf("nothing: %v of %d", d, n)
	}
	took[place(900*time.Microsecond)] = 95
	took[place(time.Second)] = 5
	if d, n := nearlyAll(took); d != time.Millisecond || n != 100 {
		t.Errorf("95 of 100 took up to 1 ms: %v of %d", d, n)
	}
	took[place(time.Second)]++
	if d, _ := nearlyAll(took); d != time.Second {
		t.Errorf("95 of 101 took up to 1 ms: %v", d)
	}
	took = [len(bounds) + 1]int{}
	took[place(time.Hour)]++
	if d, _ := nearlyAll(took); d != bounds[len(bounds)-1] {
		t.Errorf("an hour: %v", d)
	}
	for i := 1; i < len(bounds); i++ {
		if bounds[i] <= bounds[i-1] {
			t.Errorf("bounds: %v after %v", bounds[i], bounds[i-1])
		}
	}
}
