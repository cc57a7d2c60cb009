package filelog

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/goleak"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/logtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDir) != "" {
		appendUntilKilled()
		return
	}
	goleak.VerifyTestMain(m)
}

// A clock is the real one, moved by hand.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

func (c *clock) move(d time.Duration) { c.offset.Add(int64(d)) }

func testOptions(t testing.TB) Options {
	return Options{
		Dir: t.TempDir(), Shards: 4, Window: time.Hour, MaxEventBytes: most(1 << 20),
		Logger: slog.New(slog.DiscardHandler),
	}
}

func open(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func TestConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T, want logtest.Options) logtest.Harness {
		c := &clock{}
		o := testOptions(t)
		o.Shards, o.Window, o.MaxEventBytes = want.Shards, want.Window, most(want.MaxEventBytes)
		o.ReadWait, o.Now = 500*time.Millisecond, c.now
		l := open(t, o)
		return logtest.Harness{
			Log:     l,
			Advance: c.move,
			Remove: func(shard int, id event.ID) {
				err := l.do(t.Context(), func() error { return l.db.Delete(entryKey(shard, id), pebble.Sync) })
				if err != nil {
					t.Fatal(err)
				}
			},
			Reopen: func() eventlog.Log {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = open(t, o)
				return l
			},
		}
	})
}

// put stores events for one device and fails the test if it can't.
func put(t testing.TB, l *Log, shard int, payloads ...string) []event.ID {
	t.Helper()
	var events []event.Event
	for _, p := range payloads {
		events = append(events, event.Event{Target: "pos-1", Type: "t", Payload: p})
	}
	res := l.Append(context.Background(), []eventlog.Append{{Shard: shard, Events: events}})[0]
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	return res.IDs
}

func stateOf(t testing.TB, l *Log, shard int) eventlog.State {
	t.Helper()
	_, st, err := l.Judge(context.Background(), shard, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func judge(t testing.TB, l *Log, shard int, cursor event.ID, targets ...string) event.Reason {
	t.Helper()
	reasons, _, err := l.Judge(context.Background(), shard, []eventlog.Question{{Cursor: cursor, Targets: targets}})
	if err != nil {
		t.Fatal(err)
	}
	return reasons[0]
}

func sweepAll(t testing.TB, l *Log, shard int) (pruned int) {
	t.Helper()
	for {
		report, err := l.Sweep(context.Background(), shard, nil)
		if err != nil {
			t.Fatal(err)
		}
		pruned += report.Pruned
		if !report.More {
			return pruned
		}
	}
}

// most is a largest payload that doesn't change.
func most(n int) func() int { return func() int { return n } }
