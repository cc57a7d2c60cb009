package redislog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/testkit"

	"github.com/google/go-cmp/cmp"
)

func post(tb testing.TB, l *Log, name, word string, ttl time.Duration) map[string]string {
	tb.Helper()
	all, err := l.Post(context.Background(), name, word, ttl)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// TestBoard: on every topology each gateway sees what all have noted, until its
// time is up; and a user needs no permission more for it.
func TestBoard(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *site{
		"one":      startOne,
		"list":     startList,
		"sentinel": startSentinel,
		"cluster":  startCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := start(t)
			var all [2]*Log
			for i := range all {
				o := optionsAt(t, at.url)
				o.Prefix = "primary-board" // which that user may
				all[i] = open(t, o)
			}
			post(t, all[0], "a", "1 2", time.Minute)
			if diff := cmp.Diff(map[string]string{"a": "1 2", "b": ""}, post(t, all[1], "b", "", time.Minute)); diff != "" {
				t.Error(diff)
			}
			post(t, all[0], "a", "1 2", 50*time.Millisecond)
			testkit.Eventually(t, "a's time is up", func() bool {
				return maps.Equal(post(t, all[1], "b", "3 4", time.Minute), map[string]string{"b": "3 4"})
			})
			if diff := cmp.Diff(map[string]string{"a": "5 6", "b": "3 4"}, post(t, all[0], "a", "5 6", time.Minute)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBoardByOthers: what somebody else puts there, or another clock, doesn't last,
// and doesn't grow.
func TestBoardByOthers(t *testing.T) {
	r := newRig(t, nil)
	const key = "pos-ev:gateways"
	now := r.redis.Do("TIME").([]any)[0].(string)
	seconds, err := strconv.Atoi(now)
	if err != nil {
		t.Fatal(err)
	}
	at := func(offset time.Duration) string {
		return fmt.Sprint((time.Duration(seconds)*time.Second + offset).Milliseconds())
	}
	for name, value := range map[string]string{
		"for ever": at(100*365*24*time.Hour) + " 0 0", "yesterday": at(-24*time.Hour) + " 0 0", "a number": "5", "nothing": "",
		"no number": "x 0 0", "negative": "-5 0 0", "huge": strings.Repeat("9", 400) + " 0 0", "too far": at(time.Hour) + " 0 0",
	} {
		r.redis.Do("HSET", key, name, value)
	}
	r.redis.Do("HSET", key, "stands", at(30*time.Second)+" 1 1")
	if diff := cmp.Diff(map[string]string{"stands": "1 1", "a": "w"}, post(t, r.Log, "a", "w", time.Minute)); diff != "" {
		t.Error(diff)
	}
	if n := r.redis.Do("HLEN", key); n != int64(2) {
		t.Errorf("%v names are left", n)
	}
	args := []string{"HSET", key}
	for i := range mostNotes + 1 {
		args = append(args, fmt.Sprint(i), at(30*time.Second)+" 1 1")
	}
	r.redis.Do(args...)
	if all := post(t, r.Log, "a", "w", time.Minute); len(all) != 1 {
		t.Errorf("%d names are left", len(all))
	}
	r.redis.Do("SET", key, "no board")
	if all, err := r.Post(t.Context(), "a", "w", time.Minute); err == nil {
		t.Errorf("read %v from what is no board", all)
	}
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, longestNote + 1} {
		if _, err := r.Post(t.Context(), "a", "w", ttl); err == nil {
			t.Errorf("noted for %v", ttl)
		}
	}
}

// TestBoardUnderFire: full memory is no reason to be without it; a flush, a server
// that forgets its scripts and one that doesn't answer are survived.
func TestBoardUnderFire(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("maxmemory 6mb", "maxmemory-policy noeviction"))
	r.fill()
	r.redis.Do("CONFIG", "SET", "maxmemory", "3mb")
	post(t, r.Log, "a", "w", time.Minute)
	r.redis.Do("SCRIPT", "FLUSH")
	post(t, r.Log, "b", "w", time.Minute)
	r.redis.Do("FLUSHALL")
	if all := slices.Collect(maps.Keys(post(t, r.Log, "b", "w", time.Minute))); !slices.Equal(all, []string{"b"}) {
		t.Errorf("after a flush: %v", all)
	}
	r.redis.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if all, err := r.Post(ctx, "a", "w", time.Minute); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("%v, %v", all, err)
	}
	r.redis.Cont()
	r.eventually(func() bool {
		_, err := r.Post(t.Context(), "a", "w", time.Minute)
		return err == nil
	})
}

// BenchmarkBoard: what a word costs Redis, by how many gateways there are.
func BenchmarkBoard(b *testing.B) {
	for _, gateways := range []int{3, 20, 100} {
		b.Run(strconv.Itoa(gateways), func(b *testing.B) {
			r := testkit.StartRedis(b)
			l := open(b, testOptions(b, r))
			name := func(i int) string { return fmt.Sprintf("%026d", i%gateways) }
			for i := range gateways {
				post(b, l, name(i), "2500 2500 0", longestNote)
			}
			r.Do("CONFIG", "RESETSTAT")
			for i := 0; b.Loop(); i++ {
				post(b, l, name(i), "2500 2500 0", longestNote)
			}
			stats := fmt.Sprint(r.Do("INFO", "commandstats"))
			_, line, _ := strings.Cut(stats, "cmdstat_evalsha:")
			_, each, _ := strings.Cut(line, "usec_per_call=")
			each, _, _ = strings.Cut(each, ",")
			if us, err := strconv.ParseFloat(each, 64); err == nil {
				b.ReportMetric(us, "µs-of-redis/op")
			}
		})
	}
}
