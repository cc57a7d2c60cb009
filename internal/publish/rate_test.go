package publish_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/problem"
	"downlink/internal/publish"
)

func to(device string) string { return fmt.Sprintf(`{"device":%q,"type":"t","payload":1}`, device) }

func wantLimited(t *testing.T, a *httptest.ResponseRecorder, after, detail string) {
	t.Helper()
	wantProblem(t, "a message", a, problem.TooManyEvents, "", detail)
	if got := a.Header().Get("Retry-After"); got != after || !strings.Contains(a.Body.String(), `"retry_after":`+after) {
		t.Errorf("Retry-After is %q, want %s: %s", got, after, a.Body)
	}
}

// A publisher has a second's worth at once, and then the rate; another one has
// its own.
func TestRateOfAPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *publish.Options) { o.PublisherRate = limits.Always(3) })
		for range 3 {
			if a := r.post(to("a")); a.Code != 200 {
				t.Fatal(a.Body)
			}
		}
		wantLimited(t, r.post(to("b")), "1", "publish_rate_per_token is 3 entries/s")
		if a := r.post(to("b"), "X-Test-Publisher", "other"); a.Code != 200 {
			t.Error(a.Body)
		}
		time.Sleep(time.Second / 3) //nolint:forbidigo // in a bubble
		if a := r.post(to("b")); a.Code != 200 {
			t.Error(a.Body)
		}
		wantLimited(t, r.post(to("b")), "1", "publish_rate_per_token")
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
		for range 3 {         // and no more, however long it was quiet
			if a := r.post(to("b")); a.Code != 200 {
				t.Fatal(a.Body)
			}
		}
		wantLimited(t, r.post(to("b")), "1", "publish_rate_per_token")
		if n := len(r.log.stored()); n != 8 {
			t.Errorf("%d are stored", n)
		}
		r.wantCount("limited", 3)
	})
}

// What goes to everybody counts for each shard, passes although it is larger
// than a second's worth, and is worked off.
func TestABroadcastCountsForEachShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for target, each := range map[string]int{"*": shards, "@g": shards} {
			r := newRig(t, func(o *publish.Options) { o.PublisherRate = limits.Always(2) })
			if a := r.post(to(target)); a.Code != 200 {
				t.Fatal(a.Body)
			}
			// In debt by each-2 entries, and one must be there.
			debt := time.Duration(each-2+1) * time.Second / 2
			wantLimited(t, r.post(to("a")), fmt.Sprint(int((debt+time.Second-1)/time.Second)), "publish_rate_per_token")
			time.Sleep(debt) //nolint:forbidigo // in a bubble
			if a := r.post(to("a")); a.Code != 200 {
				t.Errorf("%s: %s", target, a.Body)
			}
		}
	})
}

// One noisy device costs its neighbours nothing; a list passes whole or not.
func TestRateOfADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *publish.Options) { o.TargetRate = limits.Always(2) })
		for range 2 {
			if a := r.post(to("noisy")); a.Code != 200 {
				t.Fatal(a.Body)
			}
		}
		wantLimited(t, r.post(to("noisy")), "1", "publish_rate_per_device is 2 entries/s, and noisy had more")
		if a := r.post(to("quiet")); a.Code != 200 {
			t.Error(a.Body)
		}
		wantLimited(t, r.post(`{"devices":["quiet","noisy"],"type":"t","payload":1}`), "1", "noisy")
		if a := r.post(to("quiet")); a.Code != 200 {
			t.Errorf("the refused list has cost quiet something: %s", a.Body)
		}
		if n := len(r.log.stored()); n != 4 {
			t.Errorf("%d are stored", n)
		}
	})
}

// The rate is asked for each message: a change counts at once.
func TestARateIsChangedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := 1
		r := newRig(t, func(o *publish.Options) { o.PublisherRate = func() int { return rate } })
		if a := r.post(to("a")); a.Code != 200 {
			t.Fatal(a.Body)
		}
		wantLimited(t, r.post(to("a")), "1", "is 1 entries/s")
		rate = 0
		for range 10 {
			if a := r.post(to("a")); a.Code != 200 {
				t.Fatal(a.Body)
			}
		}
		rate = 5
		for range 5 {
			if a := r.post(to("a")); a.Code != 200 {
				t.Fatal(a.Body)
			}
		}
		wantLimited(t, r.post(to("a")), "1", "is 5 entries/s")
	})
}

// In a batch nothing overtakes a refused line for the same addressee; lines for
// others go on, and after the publisher's own rate none does.
func TestRatesInABatch(t *testing.T) {
	lines := func(targets ...string) string {
		all := make([]string, len(targets))
		for i, target := range targets {
			all[i] = to(target)
		}
		return strings.Join(all, "\n")
	}
	for name, c := range map[string]struct {
		publisher, target int
		lines             string
		want              string // s: stored, r: refused
	}{
		"a noisy device":          {0, 2, lines("a", "a", "b", "a", "b", "a", "c"), "sssrsrs"},
		"everybody comes later":   {0, 2, lines("a", "a", "a", "*", "@g", "b"), "ssrrrs"},
		"everybody is refused":    {0, 2, lines("*", "a", "*", "b"), "ssrr"},
		"the publisher is":        {3, 0, lines("a", "b", "c", "d", "e"), "sssrr"},
		"the publisher, by a big": {3, 0, lines("a", "*", "d", "e"), "ssrr"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *publish.Options) {
					o.PublisherRate, o.TargetRate = limits.Always(c.publisher), limits.Always(c.target)
				})
				got := ""
				for _, reply := range r.batch(c.lines) {
					if reply.is(problem.TooManyEvents) {
						got += "r"
					} else {
						got += "s"
					}
				}
				if got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}

// A batch that is repeated whole, as its header's key wants it, gets further each
// time: what it merely repeats costs nothing.
func TestARepeatedBatchGetsFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *publish.Options) { o.PublisherRate, o.TargetRate = limits.Always(10), limits.Always(7) })
		const lines = 100
		var body strings.Builder
		for i := range lines {
			body.WriteString(to(fmt.Sprint("d", i%3)) + "\n")
		}
		stood := 0
		for try := 1; stood < lines; try++ {
			stand := 0
			for i, reply := range r.batch(body.String(), publish.IdempotencyHeader, "k") {
				if !reply.is(problem.TooManyEvents) {
					stand++
				} else if i < stood {
					t.Fatalf("line %d stands and is refused", i+1)
				}
			}
			if stand < stood+10 && stand != lines || try > lines {
				t.Fatalf("try %d: %d stand, %d before", try, stand, stood)
			}
			stood = stand
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		}
		if n := len(r.log.stored()); n != lines {
			t.Errorf("%d are stored", n)
		}
		// A single one that is repeated costs nothing either, nor does one that fails.
		for range 30 {
			if a := r.post(to("x"), publish.IdempotencyHeader, "single"); a.Code != 200 {
				t.Fatal(a.Body)
			}
		}
		r.log.fail = map[int]error{0: eventlog.ErrUnavailable, 1: eventlog.ErrUnavailable, 2: eventlog.ErrUnavailable, 3: eventlog.ErrUnavailable}
		for range 30 {
			if a := r.post(to("y")); a.Code != 503 {
				t.Fatal(a.Body)
			}
		}
	})
}

// Over any stretch of time a publisher gets what the rate allows, a second's
// worth and one message more, whatever it sends; and who keeps to the rate is
// never refused.
func TestRateHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			rate := rapid.IntRange(1, 50).Draw(rt, "rate")
			r := newRig(t, func(o *publish.Options) { o.PublisherRate = limits.Always(rate) })
			begun, stored := time.Now(), 0
			for range rapid.IntRange(1, 40).Draw(rt, "messages") {
				target, cost := "a", 1
				if rapid.Bool().Draw(rt, "all") {
					target, cost = "*", shards
				}
				if r.post(to(target)).Code == 200 {
					stored += cost
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "ms")) * time.Millisecond) //nolint:forbidigo // in a bubble
				if most := float64(rate)*time.Since(begun).Seconds() + float64(rate+shards); float64(stored) > most {
					rt.Fatalf("%d entries in %v at %d/s", stored, time.Since(begun), rate)
				}
			}
			time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
			for i := range 3 * rate {
				if a := r.post(to("a")); a.Code != 200 {
					rt.Fatalf("message %d at exactly %d/s: %s", i, rate, a.Body)
				}
				time.Sleep(time.Second / time.Duration(rate)) //nolint:forbidigo // in a bubble
			}
		})
	})
}
