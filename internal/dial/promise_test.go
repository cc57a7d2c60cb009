package dial

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/inventory"
	"downlink/internal/post"
	"downlink/internal/session"
)

// An act is something that may happen to a device that gets POSTs.
type act struct {
	what string
	then time.Duration // that passes after it
}

// taken is what the device has answered 2xx, in order.
type taken struct {
	mu     sync.Mutex
	status int
	slow   time.Duration
	open   int
	log    []string // "event ID" or "resync ID"
	faults []string
}

// Post is what the device makes of a request: nothing of one that is cut.
func (d *taken) Post(ctx context.Context, _ inventory.Device, e post.Event) (*post.Reply, error) {
	d.mu.Lock()
	if d.open++; d.open > 1 {
		d.faults = append(d.faults, "two requests at a time")
	}
	status, slow := d.status, d.slow
	d.mu.Unlock()
	answering := time.NewTimer(slow)
	defer answering.Stop()
	var cut error
	select {
	case <-answering.C:
	case <-ctx.Done():
		cut = ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	if cut != nil {
		return nil, cut
	}
	if status == http.StatusOK {
		kind := "event"
		if e.Type == event.ResyncType {
			kind = "resync"
		}
		d.log = append(d.log, kind+" "+e.ID)
	}
	return &post.Reply{Status: status}, nil
}

func (d *taken) set(status int, slow time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status, d.slow = status, slow
}

// TestThePromiseByPost: whatever happens, each event reaches the device in order, or
// the device is told to fetch its state at a position that isn't before it.
func TestThePromiseByPost(t *testing.T) {
	words := []string{"publish", "publish", "publish", "for another", "well", "refuses", "slow", "lapse", "renew", "let", "take", "again", "move", "disconnect", "away", "back", "nothing"}
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) act {
			return act{
				rapid.SampledFrom(words).Draw(rt, "act"),
				rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second, 5 * time.Second, 40 * time.Second}).Draw(rt, "for"),
			}
		}), 1, 40).Draw(rt, "acts")
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = playOut(t, acts) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// playOut lets things happen, then all is well for a while. It says what was wrong.
func playOut(t *testing.T, acts []act) string {
	d := &taken{status: http.StatusOK}
	r := newRig(t, Post, func(o *Options) {
		o.Poster = d
		o.Backoff.Base, o.Backoff.Max = time.Second, 8*time.Second
	})
	r.log.kept["a"] = event.ID{Ms: 1000}
	r.list("a", "http://a/")
	generation, published := uint64(1), []event.ID{}
	r.take(generation, time.Hour)
	for i, a := range acts {
		switch a.what {
		case "publish":
			published = append(published, r.publish("a", fmt.Sprint(i)))
		case "for another":
			r.publish("b", "x")
		case "well":
			d.set(http.StatusOK, 0)
		case "refuses":
			d.set(http.StatusServiceUnavailable, 0)
		case "slow":
			d.set(http.StatusOK, 20*time.Second)
		case "lapse":
			lapse(r)
		case "renew":
			if r.lease.Load() != nil {
				r.renew(time.Hour)
			}
		case "let":
			r.let()
		case "take":
			if r.lease.Load() == nil {
				generation++
				r.take(generation, time.Hour)
			}
		case "again":
			if r.lease.Load() != nil {
				generation++
				r.take(generation, time.Hour)
			}
		case "move":
			r.list("a", fmt.Sprintf("http://a/%d", i))
		case "disconnect":
			session.EndDevice(r.shards.Of("a"), "a", session.Disconnected, nil)
		case "away", "back":
			r.log.mu.Lock()
			r.log.away = a.what == "away"
			r.log.mu.Unlock()
		}
		pass(a.then)
	}
	r.log.mu.Lock()
	r.log.away = false
	r.log.mu.Unlock()
	d.set(http.StatusOK, 0)
	generation++
	r.take(generation, time.Hour)
	pass(2 * time.Minute)
	d.mu.Lock()
	defer d.mu.Unlock()
	return judge(published, d.log, d.faults)
}

func lapse(r *rig) {
	if r.lease.Load() != nil {
		r.renew(-time.Second)
	}
}

// judge holds what a device has taken against what was published for it.
func judge(published []event.ID, log, faults []string) string {
	if len(faults) > 0 {
		return faults[0]
	}
	through := event.ID{Ms: 1000} // the device knows everything up to here
	for _, line := range log {
		kind, text, _ := strings.Cut(line, " ")
		id, err := event.ParseID(text)
		if err != nil {
			return err.Error()
		}
		if kind == "event" {
			for _, p := range published {
				if through.Less(p) && p.Less(id) {
					return fmt.Sprintf("%v came before %v: %v", id, p, log)
				}
			}
		}
		through = event.Max(through, id)
	}
	if n := len(published); n > 0 && through.Less(published[n-1]) {
		return fmt.Sprintf("the device has come to %v, and %v was published: %v", through, published[n-1], log)
	}
	return ""
}

// TestTheJudgeCanFail: a checker that can't proves nothing.
func TestTheJudgeCanFail(t *testing.T) {
	ids := []event.ID{{Ms: 1000, Seq: 1}, {Ms: 1000, Seq: 2}}
	for log, ok := range map[string]bool{
		"event 1000-1,event 1000-2":              true,
		"event 1000-1,event 1000-1,event 1000-2": true,
		"resync 1000-1,event 1000-2":             true,
		"resync 1000-2":                          true,
		"event 1000-2":                           false,
		"event 1000-2,event 1000-1":              false,
		"event 1000-1":                           false,
		"":                                       false,
	} {
		var lines []string
		if log != "" {
			lines = strings.Split(log, ",")
		}
		if wrong := judge(ids, lines, nil); (wrong == "") != ok {
			t.Errorf("%q: %q", log, wrong)
		}
	}
	if judge(ids[:0], nil, []string{"x"}) == "" {
		t.Error("faults don't count")
	}
}
