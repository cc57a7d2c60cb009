package redislog

import (
	"strings"
	"testing"

	"downlink/internal/event"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, func(o *Options) { o.Metrics = NewMetrics(reg) })
	for _, c := range callNames() {
		if n := testutil.ToFloat64(r.opts.Metrics.failed[c]); n != 0 {
			t.Errorf("%s: %v errors before anything failed", c, n)
		}
	}
	r.app("a")
	for range 3 {
		if _, err := r.Read(t.Context(), 0, make([]event.ID, r.Shards())); err != nil {
			t.Fatal(err)
		}
	}
	if n := testutil.ToFloat64(r.opts.Metrics.dials); n != 1 {
		t.Errorf("three reads took %v connections", n)
	}
	r.redis.Kill9()
	r.eventually(func() bool { return r.try(t.Context(), "a", nil).Err != nil })
	if _, err := r.Read(t.Context(), 0, make([]event.ID, r.Shards())); err == nil {
		t.Error("Read without a server succeeded")
	}
	for _, c := range []callName{callAppend, callRead} {
		if n := testutil.ToFloat64(r.opts.Metrics.failed[c]); n == 0 {
			t.Errorf("a failed %s is not counted", c)
		}
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	families, _ := reg.Gather()
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "downlink_redis_") {
			t.Errorf("metric %s", f.GetName())
		}
	}
}
