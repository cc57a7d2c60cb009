package redislog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/event"
)

// TestServerThatBecomesUnfit: somebody lets Redis evict while gateways run. It is said
// once by each, counted while it lasts, and said when it is mended; the log goes on.
func TestServerThatBecomesUnfit(t *testing.T) {
	var said bytes.Buffer
	r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
	inspect := func(later bool) {
		t.Helper()
		if later {
			r.groups[0].home.node().fit.at.Store(0)
		}
		if _, err := r.Inspect(t.Context(), 0, make([]event.ID, 4)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(servers float64, words map[string]int) {
		t.Helper()
		if n := testutil.ToFloat64(r.Log.opts.Metrics.unfit); n != servers {
			t.Errorf("%v servers are unfit, want %v", n, servers)
		}
		for word, n := range words {
			if got := strings.Count(said.String(), word); got != n {
				t.Errorf("%q is said %d times, want %d:\n%s", word, got, n, said.String())
			}
		}
	}
	inspect(true)
	expect(0, map[string]int{"level=": 0})
	r.redis.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	inspect(false) // it was asked a moment ago
	expect(0, map[string]int{"level=": 0})
	for range 3 {
		inspect(true)
	}
	expect(1, map[string]int{"no gateway would start with this Redis": 1, "allkeys-lru": 1, "level=ERROR": 1})
	r.redis.Do("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	inspect(true)
	expect(1, map[string]int{"volatile-lru": 1})
	r.redis.Do("CONFIG", "SET", "maxmemory-policy", noEviction)
	inspect(true)
	expect(0, map[string]int{"as it must be again": 1, "level=ERROR": 2})
}

// TestEvictionThatIsAllowed is no news, however often it is seen.
func TestEvictionThatIsAllowed(t *testing.T) {
	var said bytes.Buffer
	r := newRig(t, func(o *Options) {
		o.AllowEviction, o.Logger = true, slog.New(slog.NewTextHandler(&said, nil))
	})
	r.redis.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	r.groups[0].home.node().fit.at.Store(0)
	if _, err := r.Inspect(t.Context(), 0, make([]event.ID, 4)); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(r.Log.opts.Metrics.unfit); n != 0 || said.Len() != 0 {
		t.Errorf("%v servers, %s", n, said.String())
	}
}
