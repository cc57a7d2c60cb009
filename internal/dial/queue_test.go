package dial

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/event"
	"downlink/internal/limits"
	"downlink/internal/post"
)

// TestPostsOfManyDevices are bounded, and one that hangs delays no other.
func TestPostsOfManyDevices(t *testing.T) {
	p := new(posted)
	p.answer = func(_ int, e post.Event) (*post.Reply, error) {
		if e.Payload == "hangs" {
			pass(30 * time.Second)
		}
		return status(200)
	}
	byPost(t, p, func(r *rig) {
		for i := range 100 {
			id := fmt.Sprint("d", i)
			r.log.kept[id] = event.ID{Ms: 1000}
			r.list(id, "http://x/")
		}
		r.take(7, time.Hour)
		synctest.Wait()
		for i := range 3 {
			r.publish(fmt.Sprint("d", i), "hangs")
		}
		for i := range 100 {
			r.publish(fmt.Sprint("d", i), "quick")
		}
		pass(time.Second)
		if _, most := p.counts(); len(p.all()) != 3+97 || most > 8 {
			t.Errorf("%d posts within a second, %d at a time", len(p.all()), most)
		}
		pass(time.Minute)
		if n := len(p.all()); n != 103 {
			t.Errorf("%d posts in the end", n)
		}
	})
}

// TestDevicesThatAreGone have half of the places at most, so that the others don't
// wait for their time limits.
func TestDevicesThatAreGone(t *testing.T) {
	var well atomic.Int64
	p := new(posted)
	p.answer = func(_ int, e post.Event) (*post.Reply, error) {
		if e.Payload == "gone" {
			pass(4 * time.Second)
			return nil, &post.Failure{Stage: post.Answer, Timeout: true, Err: context.DeadlineExceeded}
		}
		well.Add(1)
		return status(200)
	}
	byPost(t, p, func(r *rig) {
		for i := range 100 {
			id := fmt.Sprint("d", i)
			r.log.kept[id] = event.ID{Ms: 1000}
			r.list(id, "http://x/")
		}
		r.take(7, time.Hour)
		synctest.Wait()
		for i := range 24 {
			r.publish(fmt.Sprint("d", i), "gone")
		}
		pass(22 * time.Second) // each was tried, and nothing has left the window
		before := len(p.all())
		for i := 24; i < 100; i++ {
			r.publish(fmt.Sprint("d", i), "quick")
		}
		pass(time.Second)
		if n := well.Load(); n != 76 {
			t.Errorf("%d of 76 devices that are well had their event within a second", n)
		}
		pass(30 * time.Second)
		if n := len(p.all()) - before - 76; n < 24 {
			t.Errorf("24 devices that are gone were tried %d times in half a minute", n)
		}
	})
}

// TestTheQueueTakesALowerLimit, and ends its workers.
func TestTheQueueTakesALowerLimit(t *testing.T) {
	p := &posted{answer: func(int, post.Event) (*post.Reply, error) {
		pass(time.Second)
		return status(200)
	}}
	var limit atomic.Int64
	limit.Store(8)
	synctest.Test(t, func(t *testing.T) {
		p.gate = make(chan struct{})
		r := newRig(t, Post, func(o *Options) { o.Poster, o.InFlight = p, func() int { return int(limit.Load()) } })
		for i := range 20 {
			id := fmt.Sprint("d", i)
			r.log.kept[id] = event.ID{Ms: 1000}
			r.list(id, "http://x/")
		}
		r.take(7, time.Hour)
		synctest.Wait()
		for i := range 20 {
			r.publish(fmt.Sprint("d", i), "x")
		}
		synctest.Wait()
		if open, _ := p.counts(); open != 8 {
			t.Errorf("%d are under way", open)
		}
		limit.Store(2)
		close(p.gate)
		pass(1500 * time.Millisecond) // those that were under way have ended
		if open, _ := p.counts(); open != 2 {
			t.Errorf("%d are under way, allowed are 2 by now", open)
		}
		pass(time.Minute)
		q := r.engine.queue
		q.mu.Lock()
		defer q.mu.Unlock()
		if n := len(p.all()); n != 20 || q.working != 0 {
			t.Errorf("%d posts, %d workers are left", n, q.working)
		}
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []int{1, 100, 5000} {
			p := newPacer(limits.Always(rate))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { p.run(ctx) })
			pass(time.Hour) // nothing is saved up
			begun := time.Now()
			for range 3*rate + 1 {
				if !p.wait(ctx) {
					t.Fatal("no turn")
				}
			}
			if took := time.Since(begun); took < 1500*time.Millisecond || took > 4500*time.Millisecond {
				t.Errorf("%d turns at %d a second took %v", 3*rate+1, rate, took)
			}
			cancel()
			running.Wait()
			if p.wait(ctx) {
				t.Error("a turn after the end")
			}
		}
	})
}
