package dial

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/event"
	"downlink/internal/inventory"
	"downlink/internal/post"
	"downlink/internal/session"
)

// posted is a device that takes POSTs as a test wishes.
type posted struct {
	mu     sync.Mutex
	got    []string // "type id payload", as they came
	last   post.Event
	answer func(n int, e post.Event) (*post.Reply, error) // n counts from 0; nil: 204
	open   int
	most   int           // that were open at a time
	gate   chan struct{} // holds every answer until it is closed; nil: none
}

func (p *posted) Post(ctx context.Context, d inventory.Device, e post.Event) (*post.Reply, error) {
	p.mu.Lock()
	n := len(p.got)
	p.got = append(p.got, fmt.Sprintf("%s %s %s", e.Type, e.ID, e.Payload))
	p.last = e
	p.open++
	p.most = max(p.most, p.open)
	answer, gate := p.answer, p.gate
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.open--
		p.mu.Unlock()
	}()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if answer != nil {
		return answer(n, e)
	}
	return &post.Reply{Status: http.StatusNoContent}, nil
}

func (p *posted) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // only ever called in a synctest bubble
}

// counts are how many are open, and were at most.
func (p *posted) counts() (open, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.most
}

func status(code int) (*post.Reply, error) { return &post.Reply{Status: code}, nil }

// byPost is an engine for POSTs in a bubble of time.
func byPost(t *testing.T, p *posted, run func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Post, func(o *Options) {
			o.Poster = p
			o.Backoff.Base, o.Backoff.Max = time.Second, 8*time.Second
		})
		run(r)
	})
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPostsComeInOrderAndOneAtATime(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		for i := range 5 {
			r.publish("a", fmt.Sprint(i))
		}
		synctest.Wait()
		equal(t, p.all(), "t 1000-1 0", "t 1000-2 1", "t 1000-3 2", "t 1000-4 3", "t 1000-5 4")
		if _, most := p.counts(); most != 1 || p.last.Extra.Get("Downlink-Generation") != "7" || p.last.Extra.Get("Downlink-Member") != "member-1" {
			t.Errorf("%d at a time, with %v", most, p.last.Extra)
		}
		pass(keepEvery)
		synctest.Wait()
		if at := r.log.position("a"); at != r.head {
			t.Errorf("kept is %v", at)
		}
	})
}

// TestANewDeviceIsToldToFetchItsState, and nothing is sent before it has.
func TestANewDeviceIsToldToFetchItsState(t *testing.T) {
	p := &posted{answer: func(n int, _ post.Event) (*post.Reply, error) {
		if n < 2 {
			return status(503)
		}
		return status(200)
	}}
	byPost(t, p, func(r *rig) {
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		synctest.Wait()
		r.publish("a", "one")
		pass(time.Minute)
		resync := `resync 1000-0 {"reason":"no-cursor","after_ms":0}`
		equal(t, p.all(), resync, resync, resync, "t 1000-1 one")
	})
}

// TestARefusedEventIsTriedUntilItLeavesTheWindow: in order, nothing overtakes it,
// and then its device is told.
func TestARefusedEventIsTriedUntilItLeavesTheWindow(t *testing.T) {
	var healthy atomic.Bool
	p := &posted{}
	p.answer = func(int, post.Event) (*post.Reply, error) {
		if healthy.Load() {
			return status(200)
		}
		return status(400)
	}
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publish("a", "poison")
		r.publish("a", "behind it")
		pass(55 * time.Second)
		n := len(p.all())
		if n < 8 || n > 60 {
			t.Errorf("%d attempts in a minute", n)
		}
		for _, got := range p.all() {
			if got != "t 1000-1 poison" {
				t.Fatalf("it was overtaken by %q", got)
			}
		}
		pass(20 * time.Second)
		if got := p.all(); got[len(got)-1] != `resync 1000-2 {"reason":"window-expired","after_ms":0}` {
			t.Errorf("after the window came %q", got[len(got)-1])
		}
		pass(10 * time.Minute) // a resync is tried for ever, and moves on
		healthy.Store(true)
		r.publish("a", "after it")
		pass(20 * time.Second)
		got := p.all()
		if tail := got[len(got)-2:]; tail[1] != "t 1000-3 after it" && tail[1] != `resync 1000-3 {"reason":"window-expired","after_ms":0}` {
			t.Errorf("in the end came %q", tail)
		}
		if n := testutil.ToFloat64(r.metrics.posts.WithLabelValues(string(expired))); n != 1 {
			t.Errorf("%v events are counted as expired", n)
		}
	})
}

// TestAnEventIsOldByTheLogsClock: who takes a shard over doesn't give an event
// that is nearly gone another whole window.
func TestAnEventIsOldByTheLogsClock(t *testing.T) {
	p := &posted{answer: func(int, post.Event) (*post.Reply, error) { return status(500) }}
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.publish("a", "old")
		r.mu.Lock()
		r.head.Ms += uint64(2 * time.Minute / time.Millisecond)
		r.mu.Unlock()
		r.publish("b", "of now")
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		pass(5 * time.Second)
		if got := p.all(); len(got) < 2 || got[0] != "t 1000-1 old" || got[1][:6] != "resync" {
			t.Errorf("got %q", got)
		}
	})
}

// TestWithoutALeaseNothingIsPosted, and all of it when there is one again.
func TestWithoutALeaseNothingIsPosted(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, 10*time.Second)
		synctest.Wait()
		pass(11 * time.Second)
		r.publish("a", "waits")
		pass(time.Minute)
		equal(t, p.all())
		r.renew(time.Minute)
		pass(glance)
		synctest.Wait()
		equal(t, p.all(), "t 1000-1 waits")
	})
}

// TestAPostThatOutlastsItsLeaseIsCut, unless the lease is renewed.
func TestAPostThatOutlastsItsLeaseIsCut(t *testing.T) {
	for name, renewed := range map[string]bool{"lapsed": false, "renewed": true} {
		t.Run(name, func(t *testing.T) {
			p := &posted{gate: make(chan struct{})}
			byPost(t, p, func(r *rig) {
				p.gate = make(chan struct{}) // of the bubble
				r.log.kept["a"] = event.ID{Ms: 1000}
				r.list("a", "http://a/")
				r.take(7, 10*time.Second)
				r.publish("a", "one")
				synctest.Wait()
				pass(9 * time.Second)
				if renewed {
					r.renew(10 * time.Second)
				}
				pass(2 * time.Second)
				if open, _ := p.counts(); (open == 1) != renewed {
					t.Errorf("%d are under way", open)
				}
				close(p.gate)
			})
		})
	}
}

// TestWhoTakesOverGoesOn from what was acknowledged, and only what was under way
// comes twice.
func TestWhoTakesOverGoesOn(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publish("a", "one")
		synctest.Wait()
		p.mu.Lock()
		p.gate = make(chan struct{})
		p.mu.Unlock()
		r.publish("a", "under way")
		synctest.Wait()
		r.publish("a", "not yet")
		begun := time.Now()
		r.let()
		if took := time.Since(begun); took != grace {
			t.Errorf("letting go took %v", took)
		}
		if at := r.log.position("a"); at != (event.ID{Ms: 1000, Seq: 1}) {
			t.Errorf("kept is %v", at)
		}
		p.mu.Lock()
		p.gate = nil
		p.mu.Unlock()
		r.take(8, time.Hour)
		synctest.Wait()
		equal(t, p.all(), "t 1000-1 one", "t 1000-2 under way", "t 1000-2 under way", "t 1000-3 not yet")
	})
}

// TestLettingGoWaitsForAnAnswer that is about to come.
func TestLettingGoWaitsForAnAnswer(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		p.gate = make(chan struct{})
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publish("a", "one")
		synctest.Wait()
		time.AfterFunc(grace/2, func() { close(p.gate) })
		r.let()
		if at := r.log.position("a"); at != (event.ID{Ms: 1000, Seq: 1}) || len(p.all()) != 1 {
			t.Errorf("kept is %v, after %q", at, p.all())
		}
	})
}

// TestAQuietDevicesPositionMovesOn, when its shard is let go of and now and then.
func TestAQuietDevicesPositionMovesOn(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		synctest.Wait()
		first := r.publish("b", "for another")
		pass(moveEvery + keepEvery)
		synctest.Wait()
		if at := r.log.position("a"); at != first {
			t.Errorf("kept is %v, want %v", at, first)
		}
		second := r.publish("b", "for another")
		r.let()
		if at := r.log.position("a"); at != second {
			t.Errorf("kept is %v, want %v", at, second)
		}
	})
}

// TestPositionsThatCantBeReadAreAskedForAgain: until then nothing is sent, because
// nobody knows from where.
func TestPositionsThatCantBeReadAreAskedForAgain(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.log.away = true
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publish("a", "one")
		pass(time.Minute)
		equal(t, p.all())
		r.log.mu.Lock()
		r.log.away = false
		r.log.mu.Unlock()
		pass(10 * time.Second)
		equal(t, p.all(), "t 1000-1 one")
	})
}

// TestAChangedDeviceGoesOnWhereItWas, at its new address.
func TestAChangedDeviceGoesOnWhereItWas(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publish("a", "one")
		synctest.Wait()
		r.list("a", "http://elsewhere/")
		synctest.Wait()
		r.publish("a", "two")
		synctest.Wait()
		equal(t, p.all(), "t 1000-1 one", "t 1000-2 two")
	})
}

func TestARevokedDeviceIsPostedNothing(t *testing.T) {
	p := new(posted)
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publish("a", "one")
		synctest.Wait()
		r.revoked.Store(true)
		session.EndDevice(r.shards.Of("a"), "a", session.Revoked, nil)
		synctest.Wait()
		r.publish("a", "two")
		pass(time.Minute)
		equal(t, p.all(), "t 1000-1 one")
		r.revoked.Store(false)
		pass(10 * time.Second)
		equal(t, p.all(), "t 1000-1 one", "t 1000-2 two")
	})
}

// TestADeviceThatRefusesGetsTheNewestOfAKey: what is in hand stays in hand, and of
// what waits behind it only the newest event of each key is posted.
func TestADeviceThatRefusesGetsTheNewestOfAKey(t *testing.T) {
	p := &posted{answer: func(n int, _ post.Event) (*post.Reply, error) {
		if n == 0 {
			return status(http.StatusServiceUnavailable)
		}
		return status(http.StatusNoContent)
	}}
	byPost(t, p, func(r *rig) {
		r.log.kept["a"] = event.ID{Ms: 1000}
		r.list("a", "http://a/")
		r.take(7, time.Hour)
		r.publishKeyed("a", "k", "in hand")
		synctest.Wait()
		for i := range 200 { // more than may wait
			r.publishKeyed("a", fmt.Sprint("k", i%2), fmt.Sprint(i))
		}
		last := r.publish("a", "last")
		pass(2 * time.Second)
		synctest.Wait()
		equal(t, p.all(), "t 1000-1 in hand", "t 1000-1 in hand", "t 1000-200 198", "t 1000-201 199", "t 1000-202 last")
		pass(keepEvery)
		synctest.Wait()
		if at := r.log.position("a"); at != last {
			t.Errorf("it has come to %v", at)
		}
	})
}
