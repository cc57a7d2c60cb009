package tail

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/testkit"
)

// ledger is what was dispatched of each shard, in order.
type ledger struct {
	mu     sync.Mutex
	seen   map[int][]event.ID
	resets int
}

func (l *ledger) Start(int, event.ID) {}

func (l *ledger) Dispatch(shard int, entries []eventlog.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		l.seen[shard] = append(l.seen[shard], entries[i].ID)
	}
}

func (l *ledger) Reset(int, event.ID, event.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resets++
}

func (l *ledger) Overtaken(context.Context, int) (event.ID, error) {
	return event.ID{}, eventlog.ErrUnavailable // the window is an hour
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, ids := range l.seen {
		n += len(ids)
	}
	return n
}

// TestNothingIsLostOrRepeatedAtSpeed: this process and another append while
// connections are killed and the server freezes; what is in the log is what was
// dispatched, each entry once and in order.
func TestNothingIsLostOrRepeatedAtSpeed(t *testing.T) {
	redis := testkit.StartRedis(t)
	log, other := speedLog(t, redis), speedLog(t, redis)
	seen, metrics := &ledger{seen: make(map[int][]event.ID)}, NewMetrics(nil)
	tail := New(log, seen, Options{
		Window: time.Hour, Watch: 50 * time.Millisecond, Pause: 5 * time.Millisecond, Metrics: metrics, Logger: discard(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tail.Run(ctx) }()
	testkit.Eventually(t, "the tail has begun", tail.Ready)

	over := make(chan struct{})
	var publishing sync.WaitGroup
	for i := range 6 {
		to := log
		if i >= 4 {
			to = other
		}
		publishing.Go(func() { publishUntil(to, fmt.Sprint("publisher-", i), over) })
	}
	// On a slow machine it takes longer until events are frequent enough to be read along.
	glanced := func() bool { return testutil.ToFloat64(metrics.Glanced) > 0 }
	for turn, began := 0, time.Now(); time.Since(began) < 2*time.Second || !glanced() && time.Since(began) < time.Minute; turn++ {
		<-time.After(100 * time.Millisecond)
		if turn%3 == 2 {
			redis.Stop()
			<-time.After(20 * time.Millisecond)
			redis.Cont()
			continue
		}
		redis.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}
	close(over)
	publishing.Wait()

	total := 0
	testkit.Eventually(t, "everything was dispatched", func() bool {
		total = 0
		for _, ids := range storedIn(t, other) { // what was given up may still come
			total += len(ids)
		}
		return seen.count() >= total
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for shard, ids := range storedIn(t, other) {
		if !slices.Equal(ids, seen.seen[shard]) {
			t.Errorf("shard %d: %d entries stored, %d dispatched, or in another order", shard, len(ids), len(seen.seen[shard]))
		}
	}
	along := int(testutil.ToFloat64(metrics.Glanced))
	t.Logf("%d entries, %d of them read along", total, along)
	if seen.resets > 0 || along == 0 {
		t.Errorf("%d resets; %d of %d entries were read along", seen.resets, along, total)
	}
}

// storedIn is what a log holds, by shard.
func storedIn(t *testing.T, log *redislog.Log) map[int][]event.ID {
	t.Helper()
	stored := make(map[int][]event.ID)
	for shard := range log.Shards() {
		var page eventlog.Page
		testkit.Eventually(t, "the log is read", func() (ok bool) {
			var err error
			page, err = log.Range(t.Context(), shard, event.ID{}, event.MaxID, 1<<30)
			return err == nil
		})
		for _, e := range page.Entries {
			stored[shard] = append(stored[shard], e.ID)
		}
	}
	return stored
}

// publishUntil appends one event after the other; one that failed may be stored
// or not.
func publishUntil(log *redislog.Log, name string, over <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-over:
			return
		default:
		}
		device := fmt.Sprint(name, "-", n)
		e := event.Event{Target: device, Type: "t", Payload: strings.Repeat("x", n%400)}
		log.Append(context.Background(), []eventlog.Append{{Shard: event.Shard(device, log.Shards()), Events: []event.Event{e}}})
		<-time.After(time.Millisecond)
	}
}

func speedLog(t *testing.T, redis *testkit.Redis) *redislog.Log {
	t.Helper()
	l, err := redislog.Open(t.Context(), redislog.Options{
		URL: redis.URL(), Shards: 16, Window: time.Hour, BlockTime: time.Second, CallTimeout: 5 * time.Second,
		Logger: discard(), Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
