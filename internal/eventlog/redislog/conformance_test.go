package redislog

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
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

// TestConformance runs the suite on one server, with a prefix for each case.
// What a restart of the server does is in restart_test.go.
func TestConformance(t *testing.T) {
	r := testkit.StartRedis(t)
	var cases atomic.Int64
	logtest.Run(t, func(t *testing.T, o logtest.Options) logtest.Harness {
		opts := testOptions(t, r)
		opts.Prefix = fmt.Sprintf("case-%d", cases.Add(1))
		opts.Shards, opts.Window, opts.MaxEventBytes = o.Shards, o.Window, func() int { return o.MaxEventBytes }
		l := open(t, opts)
		key := func(shard int) string { return fmt.Sprintf("%s:%d", opts.Prefix, shard) }
		return logtest.Harness{
			Log: l,
			AppendRaw: func(shard int, fields ...string) event.ID {
				return xadd(t, r, key(shard), "*", fields...)
			},
			Remove: func(shard int, id event.ID) {
				r.Do("XDEL", key(shard), id.String())
			},
			Reopen: func() eventlog.Log {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = open(t, opts)
				return l
			},
		}
	})
}

// testOptions are quick: marks every few milliseconds, short waits.
func testOptions(tb testing.TB, r *testkit.Redis) Options {
	return Options{
		URL:         r.URL(),
		TLS:         TLSFiles{CA: r.CAFile()},
		Shards:      4,
		Window:      time.Hour,
		SweepStep:   2 * time.Millisecond,
		BlockTime:   500 * time.Millisecond,
		CallTimeout: 15 * time.Second, // a loaded machine is no failure
		Logger:      slog.New(slog.NewTextHandler(tb.Output(), nil)),
		Metrics:     NewMetrics(prometheus.NewRegistry()),
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

// The keys of shard 0, which most tests use.
const (
	stream0 = "pos-ev:0"
	record0 = "pos-ev:0:sweep"
	notes0  = "pos-ev:0:gone"
)

// xadd appends as a foreign producer would.
func xadd(tb testing.TB, r *testkit.Redis, key, id string, fields ...string) event.ID {
	tb.Helper()
	reply := r.Do(append([]string{"XADD", key, id}, fields...)...)
	parsed, err := event.ParseID(reply.(string))
	if err != nil {
		tb.Fatal(err)
	}
	return parsed
}
