package publish_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/limits"
	"downlink/internal/publish"
)

// All publishers together are held to a rate: who sends little is heard whatever
// another one sends, what he leaves is the other's, and who is refused is told by
// which signal.
func TestRateOfAllPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *publish.Options) {
			o.Rate = limits.Always(100)
			o.Because = func() publish.Cause { return publish.Cause{Signal: "redis_memory", Detail: "redis_memory is 84 %"} }
		})
		noisy, quiet := 0, 0
		for range 20 * 10 { // tenths of a second
			for range 50 {
				if a := r.post(to("a"), "X-Test-Publisher", "noisy"); a.Code == 200 {
					noisy++
				} else if a.Code != 429 || a.Header().Get(publish.SignalHeader) != "redis_memory" {
					t.Fatal(a.Code, a.Header(), a.Body)
				}
			}
			if a := r.post(to("b"), "X-Test-Publisher", "quiet"); a.Code == 200 {
				quiet++
			}
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble
		}
		if quiet < 195 || noisy < 1700 || noisy+quiet > 2200 {
			t.Errorf("%d of 200 of the quiet one were stored, and %d of the other", quiet, noisy)
		}
		a := r.post(to("a"), "X-Test-Publisher", "noisy")
		for range 200 {
			if a.Code == 429 {
				break
			}
			a = r.post(to("a"), "X-Test-Publisher", "noisy")
		}
		wantProblem(t, "a message", a, "too-many-events", "", "publish_rate is 100 entries/s at the moment, for all publishers of this gateway: redis_memory is 84 %")
	})
}

// Those who are refused at one moment come back spread, at the rate.
func TestRefusedPublishersComeBackSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *publish.Options) { o.Rate = limits.Always(10) })
		at := make(map[int]int)
		for range 400 {
			if a := r.post(to("a")); a.Code == 429 {
				after, err := strconv.Atoi(a.Header().Get("Retry-After"))
				if err != nil || after < 1 || after > 60 {
					t.Fatal(a.Header())
				}
				at[after]++
			}
		}
		for second, n := range at {
			if n > 25 {
				t.Errorf("%d come back after %d s, at a rate of 10", n, second)
			}
		}
		if len(at) < 30 {
			t.Errorf("they come back within %d s", len(at))
		}
	})
}

// What is asked for is counted before any rate is asked, and whatever becomes of it;
// what can't be an event isn't.
func TestAskedAndStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *publish.Options) { o.Rate = limits.Always(2) })
		for range 3 {
			r.post(to("a"))
		}
		r.batch(strings.Join([]string{to("a"), to("b"), "rubbish", to("*")}, "\n"))
		h := r.handler.(*publish.Handler) //nolint:forcetypeassert // newRig has made it
		if asked, stored := h.Asked(), h.Stored(); asked != 3+2+shards || stored != 2 {
			t.Errorf("%d entries were asked for, %d stored", asked, stored)
		}
	})
}
