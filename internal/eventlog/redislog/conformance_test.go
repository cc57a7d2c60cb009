package redislog

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/logtest"
	"downlink/internal/testkit"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T, o logtest.Options) logtest.Harness {
		r := testkit.StartRedis(t, testkit.RedisConfig("appendonly yes"))
		opts := testOptions(t, r)
		opts.Shards, opts.Window, opts.MaxEventBytes = o.Shards, o.Window, o.MaxEventBytes
		l := open(t, opts)
		return logtest.Harness{
			Log: l,
			AppendRaw: func(shard int, fields ...string) event.ID {
				return xadd(t, r, shard, "*", fields...)
			},
			Remove: func(shard int, id event.ID) {
				r.Do("XDEL", stream(shard), id.String())
			},
			Reopen: func() eventlog.Log {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				r.Restart()
				l = open(t, opts)
				return l
			},
		}
	})
}

// testOptions are quick: marks every few milliseconds, short waits.
func testOptions(tb testing.TB, r *testkit.Redis) Options {
	return Options{
		URL:       r.URL(),
		Shards:    4,
		Window:    time.Hour,
		SweepStep: 2 * time.Millisecond,
		BlockTime: 500 * time.Millisecond,
		Logger:    slog.New(slog.NewTextHandler(tb.Output(), nil)),
		Metrics:   NewMetrics(prometheus.NewRegistry()),
	}
}

func open(tb testing.TB, opts Options) *Log {
	tb.Helper()
	l, err := Open(context.Background(), opts)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

func stream(shard int) string { return "pos-ev:" + strconv.Itoa(shard) }

// xadd appends as a foreign producer would.
func xadd(tb testing.TB, r *testkit.Redis, shard int, id string, fields ...string) event.ID {
	tb.Helper()
	reply := r.Do(append([]string{"XADD", stream(shard), id}, fields...)...)
	parsed, err := event.ParseID(reply.(string))
	if err != nil {
		tb.Fatal(err)
	}
	return parsed
}
