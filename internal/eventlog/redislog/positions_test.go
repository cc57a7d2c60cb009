package redislog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func (r *rig) keep(generation uint64, device string, id event.ID) error {
	return r.KeepPositions(r.Context(), 0, generation, map[string]event.ID{device: id})
}

func (r *rig) wantPosition(device string, want event.ID) {
	r.Helper()
	got, err := r.Positions(r.Context(), 0, []string{device})
	if err != nil || got[device] != want {
		r.Errorf("the position of %s is %s, %v; want %s", device, got[device], err, want)
	}
}

// TestPositionsWithoutScripts: a server that was flushed of them learns the
// script within the call.
func TestPositionsWithoutScripts(t *testing.T) {
	r := newRig(t, nil)
	first := r.app("a")
	if err := r.keep(3, "a", first); err != nil {
		t.Fatal(err)
	}
	r.redis.Do("SCRIPT", "FLUSH")
	second := r.app("a")
	if err := r.keep(3, "a", second); err != nil {
		t.Errorf("after SCRIPT FLUSH: %v", err)
	}
	r.wantPosition("a", second)
	r.redis.Do("SCRIPT", "FLUSH")
	if err := r.keep(2, "a", r.app("a")); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("an older owner after SCRIPT FLUSH: %v", err)
	}
}

// TestPositionsWithFullMemory: without them every event would be sent again.
func TestPositionsWithFullMemory(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("maxmemory 6mb", "maxmemory-policy noeviction"))
	id := r.app("a")
	r.fill()
	r.redis.Do("CONFIG", "SET", "maxmemory", "3mb")
	if err := r.keep(1, "a", id); err != nil {
		t.Errorf("KeepPositions: %v", err)
	}
	r.wantPosition("a", id)
}

// TestPositionsWrittenByHand: what is no position is none, and gives way.
func TestPositionsWrittenByHand(t *testing.T) {
	r := newRig(t, nil)
	id := r.app("a")
	r.redis.Do("HSET", positions0, "", "x", "a", "", "b", "no ID", "c", "1", "d", "01-1", "e", "1-0")
	got, err := r.Positions(t.Context(), 0, []string{"a", "b", "c", "d", "e"})
	if diff := cmp.Diff(map[string]event.ID{"e": {Ms: 1}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, device := range []string{"a", "b", "c", "d", "e"} {
		if err := r.keep(7, device, id); err != nil {
			t.Errorf("in place of what stood there for %s: %v", device, err)
		}
		r.wantPosition(device, id)
	}
	r.redis.Do("DEL", positions0)
	r.redis.Do("SET", positions0, "something else")
	if err := r.keep(8, "a", id); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("with a key of another type: %v", err)
	}
	if _, err := r.Positions(t.Context(), 0, []string{"a"}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("with a key of another type: %v", err)
	}
}

// TestPositionsWithoutAnAnswer: within the caller's time.
func TestPositionsWithoutAnAnswer(t *testing.T) {
	r := newRig(t, nil)
	id := r.app("a")
	r.redis.Stop()
	defer r.redis.Cont()
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.KeepPositions(short, 0, 1, map[string]event.ID{"a": id}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("KeepPositions: %v", err)
	}
	if _, err := r.Positions(short, 0, []string{"a"}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Positions: %v", err)
	}
}

// TestPositionsOfALostLog: with the log its positions are gone, and a new log's
// take their place.
func TestPositionsOfALostLog(t *testing.T) {
	r := newRig(t, nil)
	lost := event.ID{Ms: uint64(time.Now().Add(time.Hour).UnixMilli())}
	if err := r.keep(1, "a", lost); err != nil {
		t.Fatal(err)
	}
	r.redis.Do("DEL", stream0)
	if err := r.keep(1, "a", event.ID{Ms: 5}); err != nil {
		t.Errorf("without a stream: %v", err)
	}
	r.wantPosition("a", event.ID{Ms: 5})
	r.redis.Do("FLUSHALL")
	r.wantPosition("a", event.ID{})
}

// BenchmarkKeepPositions is what 780 devices of a shard cost: 50,000 of 64.
func BenchmarkKeepPositions(b *testing.B) {
	redis := testkit.StartRedis(b)
	log := open(b, Options{URL: redis.URL(), Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry())})
	positions := make(map[string]event.ID)
	for i := range 780 {
		positions[fmt.Sprintf("store-%04d/pos-%d", i/3, i%3)] = event.ID{Ms: uint64(time.Now().UnixMilli())}
	}
	for b.Loop() {
		for d, id := range positions {
			positions[d] = id.Next()
		}
		if err := log.KeepPositions(b.Context(), 0, 7, positions); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	used := redis.Do("MEMORY", "USAGE", "pos-ev:0:pos", "SAMPLES", "0")
	b.ReportMetric(float64(used.(int64))/float64(len(positions)), "B/device")
}
