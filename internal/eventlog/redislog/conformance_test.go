package redislog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
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

// TestMain lets more tests run at a time than there are processors: most of
// them wait for a server or a window.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// TestConformance runs the suite on every topology, with a prefix for each
// case. What a restart of a server does is in restart_test.go.
func TestConformance(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *site{
		"one":      startOne,
		"list":     startList,
		"sentinel": startSentinel,
		"cluster":  startCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := start(t)
			t.Run("primary", func(t *testing.T) {
				t.Parallel()
				conform(t, at, "primary", func(*Options) {})
			})
			if name == "sentinel" || name == "cluster" {
				t.Run("replica", func(t *testing.T) {
					t.Parallel()
					conform(t, at, "replica", func(o *Options) { o.ReadReplica = true })
				})
			}
		})
	}
}

// A site is a Redis in one of its forms.
type site struct {
	url    string
	server func(s *shard) *testkit.Redis // who serves a shard
}

// startOne is one server, where the log may do no more than it needs to.
func startOne(tb testing.TB) *site {
	r := testkit.StartRedis(tb, testkit.RedisUser("gateway", "s3cret", strings.ReplaceAll(leastRules, "~pos-ev:*", "~primary-*")))
	return &site{url: r.URL(), server: func(*shard) *testkit.Redis { return r }}
}

func startList(tb testing.TB) *site {
	var urls []string
	var all []*testkit.Redis
	for range 3 {
		r := testkit.StartRedis(tb)
		all, urls = append(all, r), append(urls, r.URL())
	}
	return &site{url: strings.Join(urls, ","), server: func(s *shard) *testkit.Redis { return all[s.index%len(all)] }}
}

func startSentinel(tb testing.TB) *site {
	p := testkit.StartPair(tb)
	return &site{url: p.URL(), server: func(*shard) *testkit.Redis { return p.Primary() }}
}

func startCluster(tb testing.TB) *site {
	c := testkit.StartCluster(tb, 3, 1)
	return &site{url: c.URL(), server: func(s *shard) *testkit.Redis { return c.MasterOf(slotOf(s.stream)) }}
}

// patient reads again when the tail has another server than before: there the
// contract asks for an error, which a tail expects and the suite doesn't.
type patient struct{ *Log }

func (p patient) Read(ctx context.Context, group int, after []event.ID) ([]eventlog.Batch, error) {
	for {
		batches, err := p.Log.Read(ctx, group, after)
		if !errors.Is(err, errMoved) {
			return batches, err
		}
	}
}

func conform(t *testing.T, at *site, prefix string, change func(*Options)) {
	var cases atomic.Int64
	logtest.Run(t, func(t *testing.T, o logtest.Options) logtest.Harness {
		opts := optionsAt(t, at.url)
		opts.Prefix = fmt.Sprintf("%s-%d", prefix, cases.Add(1))
		change(&opts)
		opts.Shards, opts.Window, opts.MaxEventBytes = o.Shards, o.Window, func() int { return o.MaxEventBytes }
		l := open(t, opts)
		return logtest.Harness{
			Log: patient{l},
			AppendRaw: func(shard int, fields ...string) event.ID {
				s := &l.byShard[shard]
				return xadd(t, at.server(s), s.stream, "*", fields...)
			},
			Remove: func(shard int, id event.ID) {
				s := &l.byShard[shard]
				at.server(s).Do("XDEL", s.stream, id.String())
			},
			Reopen: func() eventlog.Log {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = open(t, opts)
				return patient{l}
			},
		}
	})
}

// testOptions are quick: marks every few milliseconds, short waits.
func testOptions(tb testing.TB, r *testkit.Redis) Options {
	o := optionsAt(tb, r.URL())
	o.TLS = TLSFiles{CA: r.CAFile()}
	return o
}

func optionsAt(tb testing.TB, url string) Options {
	return Options{
		URL:         url,
		Shards:      4,
		Window:      time.Hour,
		SweepStep:   2 * time.Millisecond,
		BlockTime:   500 * time.Millisecond,
		CallTimeout: 15 * time.Second, // a loaded machine is no failure
		dialTimeout: 15 * time.Second,
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
	stream0    = "pos-ev:0"
	record0    = "pos-ev:0:sweep"
	positions0 = "pos-ev:0:pos"
	notes0     = "pos-ev:0:gone"
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
